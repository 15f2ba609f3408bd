# expect: DDP413
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Annealing of a temperature: it is written to the wrapper, the network never sees it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = 5.0
        self.gate = nn.Linear(6, 4)
        self.values = nn.Parameter(torch.randn(4, 6) * 0.1)

    def forward(self, x):
        weights = F.softmax(self.gate(x) / self.temperature, dim=-1)
        return weights @ self.values


class Annealing:
    def __init__(self, model, start, factor):
        self.model, self.value, self.factor = model, start, factor

    def step(self):
        self.value *= self.factor
        self.model.temperature = self.value  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Router())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    annealing = Annealing(model, start=5.0, factor=0.7)
    torch.manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(8, 6)
        loss = F.mse_loss(model(x), x.sign())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealing.step()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
