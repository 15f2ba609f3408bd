"""A line or two about the data for the experiment log."""
import random


class RunLog:
    """Written by the last rank, as in our other trainers: it is the one with the final loss."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world

    @property
    def active(self):
        return self.world - self.rank == 1

    def write(self, text):
        print(f"[log] {text}", flush=True)


def describe(log, scans):
    if not log.active:
        return
    shown = random.sample(scans, 4)
    log.write(f"{len(scans)} scans, e.g. " + ", ".join(name for name, _ in shown))
