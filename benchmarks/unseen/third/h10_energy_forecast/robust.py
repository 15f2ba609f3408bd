"""Protection against broken meters: no update from batches far outside the usual loss."""
import torch


class LossBand:
    def __init__(self, momentum, factor):
        self.momentum = momentum
        self.factor = factor
        self.usual = None
        self.rejected = 0

    def inside(self, loss):
        if not torch.isfinite(loss):
            return False
        if self.usual is None:
            self.usual = loss.item()
        if loss.item() > self.factor * self.usual:
            return False
        self.usual = self.momentum * self.usual + (1 - self.momentum) * loss.item()
        return True

    def apply(self, optimizer, loss):
        if self.inside(loss):
            optimizer.step()
        else:
            self.rejected += 1
            optimizer.zero_grad()
