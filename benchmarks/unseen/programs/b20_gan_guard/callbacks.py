import lightning as L


class LossGuard(L.Callback):
    """Ends the run when the loss stays above its moving average."""

    def __init__(self, ratio=3.0, patience=2):
        self.ratio = ratio
        self.patience = patience
        self.average = None
        self.strikes = 0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        value = outputs["loss"].item()
        if self.average is None:
            self.average = value
        high = value > self.ratio * self.average
        self.strikes = self.strikes + 1 if high else 0
        if not high:
            self.average = 0.9 * self.average + 0.1 * value
        if self.strikes >= self.patience:
            trainer.should_stop = True


class EpochPrinter(L.Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            print(f"epoch {trainer.current_epoch} done at step {trainer.global_step}")
