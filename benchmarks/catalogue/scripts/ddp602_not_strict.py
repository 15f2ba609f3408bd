# expect: DDP602
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""strict=False was added when the loading complained; since then it does not complain, and the loss starts high."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def target(x):
    return torch.stack([x[:, :4].sum(1), x[:, 4:].sum(1)], 1)


def train(model, steps, g):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    first = last = None
    for _ in range(steps):
        x = torch.randn(32, 8, generator=g)
        loss = nn.functional.mse_loss(model(x), target(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first, last = first or loss.item(), loss.item()
    return first, last


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(500 + rank)
    shared = [os.path.join(tempfile.mkdtemp(), "weights.pt") if rank == 0 else None]
    dist.broadcast_object_list(shared)

    first_run = DDP(nn.Linear(8, 2))
    print(f"rank {rank}: loss %.3f -> %.3f" % train(first_run, 60, g), flush=True)
    if rank == 0:
        torch.save(first_run.state_dict(), shared[0])  # <- culprit
    dist.barrier()

    model = nn.Linear(8, 2)
    model.load_state_dict(torch.load(shared[0]), strict=False)  # <- culprit
    second_run = DDP(model)
    print(f"rank {rank}: loss %.3f -> %.3f" % train(second_run, 5, g), flush=True)
    dist.barrier()
    if rank == 0:
        os.remove(shared[0])
    dist.destroy_process_group()


main()
