"""Synthetic hours: station, weather (temperature, rain, wind, hour of the day), bikes taken."""
import torch
from torch.utils.data import Dataset


class BikeHours(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.station = torch.randint(12, (n,), generator=g)
        self.weather = torch.randn(n, 4, generator=g)
        base = torch.linspace(-1, 1, 12)[self.station]
        temperature, rain, wind, hour = self.weather.T
        self.demand = base + 0.8 * temperature - 0.5 * rain.relu() + 0.3 * hour.sin()
        self.demand += 0.1 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.station)

    def __getitem__(self, index):
        return self.station[index], self.weather[index], self.demand[index]
