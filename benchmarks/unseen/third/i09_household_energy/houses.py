"""Hourly consumption; every worker owns some households, and households have differing histories."""
import torch

LAGS = 24


def history(house):
    g = torch.Generator().manual_seed(7000 + house)
    hours = 24 * (6 + (house * 5) % 9)
    t = torch.arange(hours, dtype=torch.float32)
    phase = torch.rand(1, generator=g) * 6.28
    return 1.0 + 0.6 * torch.sin(t * 6.28 / 24 + phase) + 0.15 * torch.randn(hours, generator=g)


class HouseholdWindows:
    def __init__(self, houses, batch):
        x, y = [], []
        for h in houses:
            win = history(h).unfold(0, LAGS + 1, 3)
            x.append(win[:, :-1])
            y.append(win[:, -1:])
        self.x, self.y, self.batch = torch.cat(x), torch.cat(y), batch

    def epoch(self, number):
        g = torch.Generator().manual_seed(number)
        for idx in torch.randperm(len(self.x), generator=g).split(self.batch):
            yield self.x[idx], self.y[idx]
