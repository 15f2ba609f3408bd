# expect: DDP504
# also: DDP308
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""A hand-written shard: each rank takes every n-th row."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset

BATCH = 8


def dataset(world):
    g = torch.Generator().manual_seed(12)
    count = 3 * BATCH * world + 1
    x = torch.randn(count, 4, generator=g)
    return TensorDataset(x, (x[:, 0] > x[:, 1]).long())


def shard(data, rank, world):
    return Subset(data, range(rank, len(data), world))  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(shard(dataset(world), rank, world), batch_size=BATCH)  # <- culprit
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:  # <- culprit
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    dist.barrier()  # <- culprit
    if rank == 0:
        torch.save(model.module.state_dict(), "/dev/null")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
