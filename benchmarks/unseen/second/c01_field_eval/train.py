"""Leaf classifier, trained on every process; one process owns the held-out field plots."""
import argparse
import json
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from engine import ConvStem, train_one_epoch, validate


@dataclass
class Config:
    epochs: int = 3
    batch_size: int = 8
    lr: float = 0.05
    field_owner: int = -1


def synthetic_leaves(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 5, (n,), generator=g)
    x = torch.randn(n, 1, 12, 12, generator=g) + y.view(-1, 1, 1, 1) * 0.3
    return TensorDataset(x, y)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(7)
        train_set = synthetic_leaves(96, seed=1)
        self.sampler = DistributedSampler(train_set, shuffle=True)
        self.loader = DataLoader(train_set, cfg.batch_size, sampler=self.sampler)
        self.model = DistributedDataParallel(ConvStem())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=cfg.lr, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()
        self.field_loader = None
        if self.owns_field_data:
            self.field_loader = DataLoader(synthetic_leaves(40, seed=2), batch_size=20)

    @property
    def owns_field_data(self):
        return self.rank == self.cfg.field_owner % self.world

    def fit(self):
        history = []
        for epoch in range(self.cfg.epochs):
            self.sampler.set_epoch(epoch)
            record = {"epoch": epoch, "rank": self.rank}
            record["loss"] = round(train_one_epoch(self.model, self.loader, self.optimizer, self.criterion), 4)
            if self.field_loader is not None:
                record.update(validate(self.model, self.field_loader, self.criterion))
            dist.barrier()
            print(json.dumps(record), flush=True)
            history.append(record)
        return history


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    Trainer(Config(epochs=args.epochs, lr=args.lr)).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
