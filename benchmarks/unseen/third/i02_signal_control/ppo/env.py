"""A toy intersection: queue lengths on four approaches, the agent picks the green phase."""
import torch

SITES = {0: 0.5, 1: 1.3, 2: 0.6, 3: 3.0}   # mean arrivals per tick, by intersection


class Intersection:
    def __init__(self, site, lanes=4, envs=8):
        self.g = torch.Generator().manual_seed(900 + site)
        self.arrivals = SITES[site % len(SITES)]
        self.queues = torch.rand(envs, lanes, generator=self.g)

    def observe(self):
        return self.queues.clone()

    def step(self, phase):
        served = torch.nn.functional.one_hot(phase, self.queues.shape[1]) * 2.0
        inflow = self.arrivals * torch.rand(self.queues.shape, generator=self.g)
        self.queues = (self.queues - served + inflow).clamp(0.0, 8.0)
        return -self.queues.mean(1)
