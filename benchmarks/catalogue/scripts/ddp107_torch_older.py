# expect: DDP107
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""The last machine was not upgraded with the others."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
    torch.__version__ = "2.9.1+cpu"
    torch.version.__version__ = "2.9.1+cpu"


def main():
    dist.init_process_group("gloo")
    print(f"rank {dist.get_rank()} torch {torch.__version__}")
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(dist.get_rank())
    for step in range(8):
        x = torch.randn(16, 10)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
