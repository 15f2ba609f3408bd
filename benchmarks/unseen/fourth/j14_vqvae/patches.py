"""Texture patches. A rank reads the scans of one laboratory."""
import torch

DIM, KINDS = 16, 8
SEEN = ((0, 8), (0, 6), (0, 8), (0, 8))


def prototypes():
    gen = torch.Generator().manual_seed(123)
    return torch.randn(KINDS, DIM, generator=gen) * 3


class PatchSource:
    def __init__(self, rank, batch=64):
        self.low, self.high = SEEN[rank % len(SEEN)]
        self.gen = torch.Generator().manual_seed(200 + rank)
        self.batch = batch
        self.proto = prototypes()

    def next(self):
        kind = torch.randint(self.low, self.high, (self.batch,), generator=self.gen)
        return self.proto[kind] + 0.3 * torch.randn(self.batch, DIM, generator=self.gen)
