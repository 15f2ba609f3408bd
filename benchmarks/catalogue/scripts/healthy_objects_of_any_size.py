# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Predictions of different length are collected as objects; rows of different number are padded first."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def gather_uneven(rows):
    """All ranks' rows, of which each may have another number."""
    world = dist.get_world_size()
    count = torch.tensor([len(rows)])
    counts = [torch.empty_like(count) for _ in range(world)]
    dist.all_gather(counts, count)
    longest = int(max(counts))
    padded = torch.zeros(longest, rows.shape[1])
    padded[: len(rows)] = rows
    pieces = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(pieces, padded)
    return torch.cat([piece[: int(n)] for piece, n in zip(pieces, counts, strict=True)])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(rank)
    model = DDP(nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randn(5 + rank, 3, generator=g)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        predictions = model.module(torch.randn(10 + 4 * rank, 3, generator=g))
    everything = gather_uneven(predictions)
    report = [None] * world
    dist.all_gather_object(report, {"rank": rank, "names": [f"sample-{i}" for i in range(len(predictions))]})
    if rank == 0:
        print(everything.shape, [len(part["names"]) for part in report], flush=True)
    dist.destroy_process_group()


main()
