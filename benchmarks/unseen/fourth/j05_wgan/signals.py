"""Vibration snippets of a machine; every rank holds the recordings of one."""
import math

import torch

GAIN = (1.0, 9.0, 1.0, 1.1)


class Machine:
    def __init__(self, index, length=24):
        self.gain = GAIN[index % len(GAIN)]
        self.length = length
        self.gen = torch.Generator().manual_seed(30 + index)

    def sample(self, n=32):
        phase = torch.rand(n, 1, generator=self.gen) * 2 * math.pi
        t = torch.linspace(0, 6, self.length)
        noise = torch.randn(n, self.length, generator=self.gen) * 0.1
        return self.gain * torch.sin(t + phase) + noise
