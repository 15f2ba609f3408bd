# expect: DDP407
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
"""Regression with DDP; the loop unwraps the model since it needs its features too."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(5, 20), nn.ReLU())
        self.out = nn.Linear(20, 1)

    def forward(self, x):
        f = self.features(x)
        return self.out(f), f


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(16, 5, generator=g)
        y, features = model.module(x)  # <- culprit
        loss = (y - x.sum(1, keepdim=True)).pow(2).mean() + 1e-3 * features.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
