"""Classifier of volumes that are read and pooled by worker processes."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from data import Volumes

TOTAL, BATCH, EPOCHS = 72, 3, 2


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))


class Trainer:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.net = DDP(build())
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05)
        ids = range(self.rank, TOTAL, self.world)
        self.loader = DataLoader(Volumes(ids), batch_size=BATCH, num_workers=1, prefetch_factor=2)

    def train_epoch(self):
        total = torch.zeros(1)
        for x, y in self.loader:
            loss = nn.functional.binary_cross_entropy_with_logits(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        dist.all_reduce(total)
        return total.item() / (self.world * len(self.loader))


def main():
    dist.init_process_group("gloo")
    trainer = Trainer()
    for epoch in range(EPOCHS):
        mean = trainer.train_epoch()
        if trainer.rank == 0:
            print(f"epoch {epoch} loss {mean:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
