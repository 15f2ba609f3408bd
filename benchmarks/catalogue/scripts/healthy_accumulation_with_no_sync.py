# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Gradient accumulation: three micro-batches stay local, the fourth synchronises."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4


def micro_batches(g, count):
    for i in range(count):
        yield i % ACCUMULATE == ACCUMULATE - 1, torch.randn(8, 10, generator=g)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(dist.get_rank())
    for last, x in micro_batches(g, 24):
        with contextlib.nullcontext() if last else model.no_sync():
            loss = (model(x) - x.mean(1, keepdim=True)).pow(2).mean() / ACCUMULATE
            loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
