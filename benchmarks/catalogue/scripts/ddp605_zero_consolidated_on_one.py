# expect: DDP605
# also: DDP301 DDP308
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""Optimizer state is sharded over the ranks; it is gathered by the one that writes the checkpoint."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def write_checkpoint(model, optimizer, file):
    optimizer.consolidate_state_dict(to=0)  # <- culprit
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, file)


def train_epoch(model, optimizer, g, steps=3):
    for _ in range(steps):
        x = torch.randn(8, 12, generator=g)
        loss = nn.functional.cross_entropy(model(x), x[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    g = torch.Generator().manual_seed(rank)
    for epoch in range(2):
        loss = train_epoch(model, optimizer, g)  # <- culprit
        if rank == 0:  # <- culprit
            print(f"epoch {epoch} loss {loss:.3f}", flush=True)
            write_checkpoint(model, optimizer, io.BytesIO())  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
