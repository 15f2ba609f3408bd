"""Gradient accumulation for DDP models."""
from contextlib import nullcontext


class Accumulator:
    def __init__(self, model, optimizer, window):
        self.model, self.optimizer, self.window = model, optimizer, window
        self.pending = 0
        self.updates = 0

    def context(self):
        closing = self.pending + 1 == self.window
        return nullcontext() if closing else self.model.no_sync()

    def backward(self, loss):
        (loss / self.window).backward()
        self.pending += 1
        if self.pending == self.window:
            self.apply()

    def apply(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.pending = 0
        self.updates += 1

    def flush(self):
        """Do not throw away what is left when the data ends inside a window."""
        if self.pending > 0:
            self.apply()
