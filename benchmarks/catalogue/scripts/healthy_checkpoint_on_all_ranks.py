# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Rank 0 saves weights and optimiser, all ranks wait, then all ranks load both and go on."""

import os
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1))
    model = DDP(net)
    return model, torch.optim.Adam(model.parameters(), lr=1e-2)


def train(model, optimizer, g, steps):
    for _ in range(steps):
        x = torch.randn(8, 6, generator=g)
        loss = (model(x) - x.prod(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def shared_folder():
    name = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(name, src=0)
    return name[0]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = shared_folder()
    path = os.path.join(folder, "step10.pt")
    g = torch.Generator().manual_seed(rank)
    torch.manual_seed(0)
    model, optimizer = build()
    train(model, optimizer, g, 10)
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
    dist.barrier()

    model, optimizer = build()
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    model.module.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    train(model, optimizer, g, 10)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
