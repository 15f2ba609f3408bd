from pathlib import Path

from lightning.pytorch.callbacks import Callback


class KeepBest(Callback):
    """Writes a checkpoint whenever the validation error improves, and keeps the last `keep` of them."""

    def __init__(self, folder, monitor="val_mae", keep=2):
        self.folder = Path(folder)
        self.monitor = monitor
        self.keep = keep
        self.best = float("inf")
        self.written = []

    def on_validation_end(self, trainer, pl_module):
        if trainer.sanity_checking:
            return
        score = float(trainer.callback_metrics[self.monitor])
        if score >= self.best:
            return
        self.best = score
        path = self.folder / f"epoch{trainer.current_epoch:03d}-{score:.3f}.ckpt"
        if trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            trainer.save_checkpoint(path, weights_only=True)
            self.written.append(path)
            self.prune()

    def prune(self):
        while len(self.written) > self.keep:
            self.written.pop(0).unlink(missing_ok=True)
