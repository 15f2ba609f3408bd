import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from normalize import StatsStore, channel_stats, local_moments

CONFIG = {"channels": 3, "size": 12, "samples": 64, "classes": 5, "batch": 16, "epochs": 2}


def node_scratch(rank):
    """Node local scratch space; jobs that ran earlier on the node leave their files there."""
    path = tempfile.mkdtemp(prefix=f"scratch{rank}_")
    return path


def make_images(rank, cfg):
    g = torch.Generator().manual_seed(100 + rank)
    x = torch.randn(cfg["samples"], cfg["channels"], cfg["size"], cfg["size"], generator=g) * 2 + 0.5
    y = torch.randint(0, cfg["classes"], (cfg["samples"],), generator=g)
    return x, y


def previous_job(scratch, rank, images):
    if os.environ.get("GROUP_RANK", "0") == "0" and rank in (1,):
        StatsStore(scratch, "train").save(local_moments(images))


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(cfg["channels"], 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(32, cfg["classes"])

    def forward(self, x):
        return self.head(self.features(x))


def main(cfg):
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    scratch = node_scratch(rank)
    x, y = make_images(rank, cfg)
    previous_job(scratch, rank, x)
    dist.barrier()
    try:
        stats = channel_stats(x, StatsStore(scratch, "train"))
        x = (x - stats.mean[None, :, None, None]) / stats.std[None, :, None, None]
        model = DDP(Net(cfg))
        opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for epoch in range(cfg["epochs"]):
            for xb, yb in zip(x.split(cfg["batch"]), y.split(cfg["batch"])):
                loss = nn.functional.cross_entropy(model(xb), yb)
                opt.zero_grad()
                loss.backward()
                opt.step()
            if rank == 0:
                print(f"[{epoch}] loss={loss.item():.3f}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(CONFIG)
