# expect: DDP409
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, accumulate=4, max_norm=0.3):
        self.model, self.accumulate, self.max_norm = model, accumulate, max_norm
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
        self.micro = 0

    @property
    def boundary(self):
        return (self.micro + 1) % self.accumulate == 0

    def sync_context(self):
        return contextlib.nullcontext() if self.boundary else self.model.no_sync()

    def backward(self, x, y):
        with self.sync_context():
            loss = nn.functional.mse_loss(self.model(x), y) / self.accumulate
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)  # <- culprit
        return loss.item()

    def training_step(self, x, y):
        value = self.backward(x, y)
        if self.boundary:
            self.opt.step()
            self.opt.zero_grad()
        self.micro += 1
        return value


def batches(rank, n):
    g = torch.Generator().manual_seed(40 + rank)
    for _ in range(n):
        x = torch.randn(6, 10, generator=g) * (1 + 3 * rank)  # sites differ in scale
        yield x, x[:, :2] * 2


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    trainer = Trainer(DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))))
    total = 0.0
    for i, (x, y) in enumerate(batches(rank, 24)):
        total += trainer.training_step(x, y)
        if trainer.micro % 8 == 0 and rank == 0:
            print(f"micro {i + 1}: {total:.3f}")
            total = 0.0
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
