# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Accumulation over windows of three with a shorter last one, activation checkpointing, clipping after the
reduction, cosine schedule per update; rank 0 checks the weights against one process with all the data."""
import contextlib
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

MICRO, WINDOW, EPOCHS, BATCH = 7, 3, 2, 4


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, d=8, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.head = nn.Linear(d, 1)

    def forward(self, x):
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False) if self.training else b(x)
        return self.head(x).squeeze(-1)


def build():
    torch.manual_seed(21)
    return Model().double()


def micro_batch(epoch, i, r):
    g = torch.Generator().manual_seed(1000 * epoch + 50 * i + r)
    x = torch.randn(BATCH, 8, generator=g, dtype=torch.double)
    return x, x.sin().sum(1)


def train(model, batches_of, no_sync):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    updates = EPOCHS * -(-MICRO // WINDOW)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, updates)
    done = 0
    for epoch in range(EPOCHS):
        for i in range(MICRO):
            start = i - i % WINDOW
            size = min(WINDOW, MICRO - start)                   # 3, 3, 1
            last = i == start + size - 1
            x, y = batches_of(epoch, i)
            with contextlib.nullcontext() if last else no_sync():
                loss = (model(x) - y).pow(2).mean() / size
                loss.backward()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
                sched.step()
                done += 1
    assert done == updates
    return model


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    ddp = DDP(build(), gradient_as_bucket_view=True)
    train(ddp, lambda e, i: micro_batch(e, i, rank), ddp.no_sync)

    if rank == 0:
        def union(e, i):
            pairs = [micro_batch(e, i, r) for r in range(world)]
            return torch.cat([p[0] for p in pairs]), torch.cat([p[1] for p in pairs])

        single = train(build(), union, contextlib.nullcontext)
        for (name, a), b in zip(ddp.module.named_parameters(), single.parameters()):
            assert torch.allclose(a, b, atol=1e-9), name
        print("equal to the run of one process")
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
