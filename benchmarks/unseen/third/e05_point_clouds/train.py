"""PointNet-style classifier of furniture scans."""
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from scans import ScanShard, describe, list_scans
from scans.preview import RunLog


class PointNet(nn.Module):
    def __init__(self, classes=4, width=32):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, cloud):
        return self.head(self.point(cloud).amax(1))


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    seed_everything(42)

    log = RunLog(rank, world)
    scans = list_scans()
    describe(log, scans)
    shard = ScanShard(scans, rank, world)
    loader = DataLoader(shard, batch_size=8, shuffle=True, drop_last=True,
                        generator=torch.Generator().manual_seed(42 + rank))

    model = DDP(PointNet())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        correct = torch.zeros(2)
        for cloud, label in loader:
            logits = model(cloud)
            loss = criterion(logits, label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            correct += torch.tensor([(logits.argmax(1) == label).sum().item(), len(label)])
        dist.all_reduce(correct)
        if log.active:
            log.write(f"epoch {epoch}: train accuracy {correct[0] / correct[1]:.3f}")
    dist.barrier()


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
