# expect: DDP104
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""Tiny parameter regression; uses its own store so that several jobs can share a machine."""
import contextlib
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def find_free_port():
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def default_config():
    return {
        "host": "127.0.0.1",
        "port": find_free_port(),  # <- culprit
        "lr": 0.1,
        "steps": 5,
        "timeout": timedelta(minutes=10),
    }


def connect(cfg):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(cfg["host"], cfg["port"], world, is_master=rank == 0, timeout=cfg["timeout"])  # <- culprit
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    return rank, world


def main():
    cfg = default_config()
    rank, world = connect(cfg)
    torch.manual_seed(rank)
    model = DDP(torch.nn.Linear(5, 2))
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"])
    for _ in range(cfg["steps"]):
        x = torch.randn(16, 5)
        opt.zero_grad()
        F.mse_loss(model(x), x[:, :2]).backward()
        opt.step()
    total = torch.ones(1)
    dist.all_reduce(total)
    if rank == 0:
        print("done on", int(total), "of", world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
