# expect: DDP603
# ranks: 2 4
# culprits: any
# outcome: crash
# plain: E
"""Checkpoints are written to a temporary name and then renamed, as one should; but by every rank."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def save_atomically(state, path):
    temporary = path + ".tmp"
    torch.save(state, temporary)  # <- culprit
    dist.barrier()
    os.replace(temporary, path)  # <- culprit


def train(folder, epochs=3):
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(9, 18), nn.ELU(), nn.Linear(18, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for _ in range(4):
            x = torch.randn(10, 9, generator=g)
            loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        state = {"model": model.module.state_dict(), "epoch": epoch}
        save_atomically(state, os.path.join(folder, "last.pt"))  # <- culprit


def main():
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    train(folder[0])  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
