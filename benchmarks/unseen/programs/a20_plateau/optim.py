import torch


class PlateauController:
    """Halves the learning rate when the validation loss stops improving."""

    def __init__(self, optimizer, patience=1, factor=0.5, min_lr=1e-4):
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, mode="min", patience=patience, factor=factor, min_lr=min_lr, threshold=1e-3
        )
        self.optimizer = optimizer

    def step(self, val_losses):
        mean = sum(val_losses) / len(val_losses)
        self.scheduler.step(mean)
        return mean

    @property
    def lr(self):
        return self.optimizer.param_groups[0]["lr"]
