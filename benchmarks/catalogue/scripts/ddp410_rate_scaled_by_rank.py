# expect: DDP410
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""Linear scaling rule for the learning rate, with the wrong factor."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def scaled_rate(base):
    return base * (int(os.environ["RANK"]) + 1)  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 12)))
    optimizer = torch.optim.SGD(model.parameters(), lr=scaled_rate(0.01), momentum=0.9)  # <- culprit
    data = torch.randn(96, 12)
    mine = data[dist.get_rank() :: dist.get_world_size()]
    for epoch in range(3):
        for x in mine.split(8):
            loss = (model(x) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # <- culprit
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
