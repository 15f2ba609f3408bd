import torch
import torch.nn.functional as F


class Loop:
    """The loop is also the state that callbacks see."""

    def __init__(self, model, optim, callbacks, max_epochs):
        self.model, self.optim = model, optim
        self.callbacks = callbacks
        self.max_epochs = max_epochs
        self.epoch = self.step = 0
        self.valid = None
        self.finished = False

    def _train(self, x, y):
        for xb, yb in zip(x.split(64), y.split(64)):
            loss = F.binary_cross_entropy_with_logits(self.model(xb), yb)
            self.optim.zero_grad()
            loss.backward()
            self.callbacks.fire("on_step", self)
            self.optim.step()
            self.step += 1

    @torch.no_grad()
    def _validate(self, x, y):
        return F.binary_cross_entropy_with_logits(self.model.module(x), y).item()

    def run(self, train, valid):
        while not self.finished and self.epoch < self.max_epochs:
            self._train(*train)
            self.valid = self._validate(*valid)
            self.callbacks.fire("on_epoch", self)
            self.epoch += 1
