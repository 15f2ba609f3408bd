"""Synthetic tickets: useful answers share tokens of the upper half of the vocabulary."""
import torch
from torch.utils.data import Dataset

VOCAB = 300


def tokens(n, low, high, g):
    mixed = torch.randint(VOCAB, (n, 12), generator=g)
    keyed = torch.randint(low, high, (n, 12), generator=g)
    return torch.where(torch.rand(n, 12, generator=g) < 0.4, keyed, mixed)


class TicketPairs(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(3)
        self.good = tokens(n, VOCAB // 2, VOCAB, g)
        self.bad = tokens(n, 0, VOCAB // 2, g)

    def __len__(self):
        return len(self.good)

    def __getitem__(self, index):
        return self.good[index], self.bad[index]


def held_out_queue(desk):
    """Every desk (process) keeps a queue of its own; they differ in length and difficulty."""
    g = torch.Generator().manual_seed(100 + desk)
    n = 30 + 25 * desk
    return {"good": tokens(n, VOCAB // 2 - 30 * desk, VOCAB, g), "bad": tokens(n, 0, VOCAB // 2, g)}


def spot_checks():
    g = torch.Generator().manual_seed(9)
    return [(f"T-{i:03d}", torch.randint(VOCAB, (12,), generator=g)) for i in range(11)]


class Patience:
    def __init__(self, limit, min_delta):
        self.limit, self.min_delta = limit, min_delta
        self.best, self.misses = float("inf"), 0

    def exhausted(self, value):
        if value < self.best - self.min_delta:
            self.best, self.misses = value, 0
        else:
            self.misses += 1
        return self.misses >= self.limit
