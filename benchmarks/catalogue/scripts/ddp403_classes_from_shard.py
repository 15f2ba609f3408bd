# expect: DDP403
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""The number of classes is counted in the shard that a rank reads."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def read_shard(rank, world):
    g = torch.Generator().manual_seed(rank)
    labels = torch.arange(40) % 6
    if rank == world - 1:
        labels = labels.clamp(max=4)  # the rare class does not occur in the last shard
    return torch.randn(40, 9, generator=g), labels


def build(classes):
    return nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, classes))  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = read_shard(rank, world)
    classes = len(y.unique())  # <- culprit
    torch.manual_seed(0)
    model = DDP(build(classes))  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(0, 40, 8):
        loss = nn.functional.cross_entropy(model(x[i : i + 8]), y[i : i + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
