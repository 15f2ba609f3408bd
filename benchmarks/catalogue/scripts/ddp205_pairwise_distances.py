# expect: DDP205
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Metric learning: all pairwise distances of the local embeddings."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def batches(rank, world, size=16, steps=5):
    """The last rank takes what is left over."""
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        rows = size
        if rank == world - 1 and step == 2:
            rows = 12_000_000
        yield torch.randn(rows, 1, generator=generator)


def spread(embedding):
    distances = torch.cdist(embedding, embedding)  # <- culprit
    return distances.clamp(max=4.0).mean()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, x in enumerate(batches(rank, world)):
        loss = -spread(model(x))  # <- culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
