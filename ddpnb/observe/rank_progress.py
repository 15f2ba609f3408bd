"""State of one rank between two observations: how long it has been blocked, sleeping or waiting."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ddpnb.model.blackbox import BoxReader
from ddpnb.model.recording import Child, Ending, Process
from ddpnb.model.stacks import Stack
from ddpnb.processes import gpus
from ddpnb.processes.process_samples import ActivityTracker, sample
from ddpnb.processes.py_spy import children

# A rank that is idle in these files may wait for its own child process: then the children are examined too.
_CHILDREN = ("/torch/utils/data/", "/multiprocessing/", "/concurrent/futures/")
_CHILDREN_AGAIN_S = 2.0


@dataclass
class Seen:
    """What is kept of a rank between two looks."""

    watch: ActivityTracker = field(default_factory=ActivityTracker)
    reader: BoxReader | None = None
    ending: Ending | None = None
    silent: bool = False
    progress: tuple[int, int] = (0, 0)  # time of the last change in its box, bytes in its log
    wakes_at: float | None = None  # the moment until which it sleeps, and since when that is known
    wakes_known: float = 0.0
    stacks: tuple[Stack, ...] = ()
    place: object = None  # of the main thread, and since when it is there
    still_since: float = field(default_factory=time.monotonic)
    children: tuple[Child, ...] = ()
    children_at: float = 0.0

    def process(self, answer: dict[str, Any] | None, device: str) -> Process:
        """The rank's process, by what the host sees of it and what it has answered, if it was asked and did."""
        now = time.monotonic()
        wakes = answer.get("wakes_in_s") if answer else None
        if isinstance(wakes, (int, float)):
            # The same sleep as last time? A loop of short sleeps always wakes soon and never ends.
            if self.wakes_at is None or abs(self.wakes_at - (now + wakes)) > 0.05:
                self.wakes_at, self.wakes_known = now + wakes, now
        else:
            self.wakes_at = None
        place = (
            (
                self.stacks[0].frames and self.stacks[0].innermost,
                self.reader.status.calls if self.reader is not None else 0,
            )
            if self.stacks
            else None
        )
        if place != self.place:
            self.place, self.still_since = place, now
        long_sleep = self.wakes_at is not None and now - self.wakes_known > 1.0
        return Process(
            self.watch.activity,
            self.watch.idle_s,
            max(0.0, self.wakes_at - now) if long_sleep and self.wakes_at is not None else None,
            str(answer.get("waits_on", ""))[:200] if answer else "",
            answered=not self.silent,
            holds_lock=self.silent and any(stack.holds_lock for stack in self.stacks),
            still_s=now - self.still_since,
            memory=self.watch.memory,
            cores=self.watch.cores,
            **gpus.usage(device),
        )

    def waited_for(self, pid: int, end: float) -> tuple[Child, ...]:
        """The processes that this rank (``pid``) waits for, if it does; looked at again every few seconds until ``end``."""
        main = next((stack for stack in self.stacks if stack.main), None)
        inside = [frame.file for frame in main.frames[-12:] if not frame.user] if main is not None else []
        if self.watch.activity != "idle" or not any(part in file for file in inside for part in _CHILDREN):
            self.children = ()
        elif not self.children or time.monotonic() - self.children_at > _CHILDREN_AGAIN_S:
            self.children = children(sample([pid])[pid].descendants, self.watch.idle_s, end)
            self.children_at = time.monotonic()
        return self.children
