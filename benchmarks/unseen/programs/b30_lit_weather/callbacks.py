import json
import time
from pathlib import Path

import lightning as L
from lightning.pytorch.utilities import rank_zero_only


class ReportWriter(L.Callback):
    def __init__(self, path):
        self.path = Path(path)
        self.rows = []

    @rank_zero_only
    def on_validation_epoch_end(self, trainer, pl_module):
        self.rows.append({"epoch": trainer.current_epoch, "step": trainer.global_step})
        self.path.write_text(json.dumps(self.rows))
        time.sleep(0.2)

    def on_fit_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            print(f"{len(self.rows)} validations, {trainer.callback_metrics['val_loss']:.4f}")


class PreviewForecast(L.Callback):
    """Draws a forecast with the bare module on one process."""

    def __init__(self, sample):
        self.sample = sample

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.global_rank != trainer.world_size - 1:
            return
        with pl_module.preview_mode():
            bars = "".join("▁▂▃▄▅▆▇█"[min(7, int(abs(v) * 4))] for v in pl_module(self.sample)[0].tolist())
        print(f"epoch {trainer.current_epoch} {bars}")
