from lightning.pytorch.callbacks import Callback


class PatienceStop(Callback):
    """Ends the run once the mean validation loss has not improved for `patience` epochs."""

    def __init__(self, patience=2, min_delta=1e-3):
        self.patience = patience
        self.min_delta = min_delta
        self.best = float("inf")
        self.bad_epochs = 0
        self.history = []

    def on_validation_epoch_start(self, trainer, pl_module):
        self.losses = []

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
        self.losses.append(float(outputs["loss"]))

    def on_validation_epoch_end(self, trainer, pl_module):
        if trainer.sanity_checking or not self.losses:
            return
        current = sum(self.losses) / len(self.losses)
        self.history.append(current)
        if current < self.best - self.min_delta:
            self.best = current
            self.bad_epochs = 0
        else:
            self.bad_epochs += 1
        if self.bad_epochs >= self.patience:
            trainer.should_stop = True
