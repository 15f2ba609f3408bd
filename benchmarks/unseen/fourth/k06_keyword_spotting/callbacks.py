import csv
import time

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_only


class EpochTable(Callback):
    """A table of the monitored values, one line for each validation."""

    def __init__(self, path):
        self.path = path

    @rank_zero_only
    def on_validation_end(self, trainer, pl_module):
        if trainer.sanity_checking:
            return
        with open(self.path, "a", newline="") as f:
            row = [trainer.current_epoch] + [f"{float(v):.4f}" for v in trainer.callback_metrics.values()]
            csv.writer(f).writerow(row)
        time.sleep(0.5)


class StopWhenSolved(Callback):
    def __init__(self, monitor, level):
        self.monitor = monitor
        self.level = level

    def on_validation_end(self, trainer, pl_module):
        solved = float(trainer.callback_metrics[self.monitor]) >= self.level
        if trainer.strategy.reduce_boolean_decision(solved, all=False):
            trainer.should_stop = True
