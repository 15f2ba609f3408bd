import torch
import torch.nn.functional as F


class Tuner:
    def __init__(self, model, reader, stopper):
        self.model, self.reader, self.stopper = model, reader, stopper
        self.optim = torch.optim.Adam(model.parameters(), lr=5e-3)

    @torch.no_grad()
    def _score(self, x, y):
        return F.cross_entropy(self.model.module(x), y).item()

    def run(self, limit):
        x, y = self.reader.load()
        held_x, held_y = x[256:], y[256:]
        for epoch in range(limit):
            for xb, yb in zip(x[:256].split(32), y[:256].split(32)):
                loss = F.cross_entropy(self.model(xb), yb)
                self.optim.zero_grad()
                loss.backward()
                self.optim.step()
            if self.stopper(self._score(held_x, held_y)):
                return epoch + 1
        return limit
