# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Warm-up, cosine and a plateau rule on the averaged validation loss; rank 0 only logs."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, ReduceLROnPlateau, SequentialLR


class Log:
    def __init__(self):
        self.rows = []

    def write(self, **values):
        self.rows.append(values)


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)))
        world = dist.get_world_size()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02 * world, momentum=0.9, weight_decay=1e-4)
        warm = LinearLR(self.optimizer, start_factor=0.1, total_iters=5)
        self.scheduler = SequentialLR(self.optimizer, [warm, CosineAnnealingLR(self.optimizer, 10)], milestones=[5])
        self.plateau = ReduceLROnPlateau(self.optimizer, patience=1)
        self.log = Log() if dist.get_rank() == 0 else None
        self.g = torch.Generator().manual_seed(dist.get_rank())

    def batch(self, n=16):
        x = torch.randn(n, 4, generator=self.g)
        return x, x.sin().sum(1, keepdim=True)

    @torch.no_grad()
    def validate(self):
        x, y = self.batch(64)
        loss = nn.functional.mse_loss(self.model.module(x), y)
        dist.all_reduce(loss)
        return loss.item() / dist.get_world_size()

    def fit(self, steps):
        for step in range(steps):
            x, y = self.batch()
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            if self.log:
                self.log.write(step=step, loss=loss.item(), lr=self.scheduler.get_last_lr()[0])
        self.plateau.step(self.validate())


def main():
    dist.init_process_group("gloo")
    Trainer().fit(15)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
