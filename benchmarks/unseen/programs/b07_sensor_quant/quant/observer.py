import torch
from torch import nn


class FakeQuant(nn.Module):
    """Rounds activations to `bits`; the range is set by calibration, not by backward."""

    def __init__(self, bits=5):
        super().__init__()
        self.levels = 2**bits - 1
        self.register_buffer("amax", torch.tensor(4.0))
        self.collecting = False
        self._seen = []

    def forward(self, x):
        if self.collecting:
            self._seen.append(x.detach().abs().max())
            return x
        step = self.amax / self.levels
        q = (x / step).round().clamp(-self.levels, self.levels) * step
        return x + (q - x).detach()

    def finish(self, momentum=0.5):
        self.collecting = False
        if self._seen:
            peak = torch.stack(self._seen).mean()
            self.amax.lerp_(peak, momentum)
        self._seen.clear()


class QuantNet(nn.Module):
    def __init__(self, dim=9, hidden=24):
        super().__init__()
        self.inp = nn.Linear(dim, hidden)
        self.q1 = FakeQuant()
        self.mid = nn.Linear(hidden, hidden)
        self.q2 = FakeQuant()
        self.out = nn.Linear(hidden, 2)

    def forward(self, x):
        x = self.q1(torch.tanh(self.inp(x)))
        x = self.q2(torch.tanh(self.mid(x)))
        return self.out(x)
