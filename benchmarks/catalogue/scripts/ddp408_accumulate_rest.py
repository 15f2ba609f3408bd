# expect: DDP408
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
import contextlib
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUM = int(os.environ.get("ACCUM", 4))


class Accumulator:
    """Steps the optimizer every `every` micro-batches and averages the gradient over them."""

    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.pending = 0
        self.steps = 0

    def context(self):
        if self.pending + 1 < self.every:
            return self.model.no_sync()  # <- culprit
        return contextlib.nullcontext()

    def backward(self, x, y, criterion):
        with self.context():  # <- culprit
            loss = criterion(self.model(x), y) / self.every
            loss.backward()  # <- culprit
        self.pending += 1
        if self.pending == self.every:
            self.apply()
        return loss.detach() * self.every

    def apply(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.pending = 0
        self.steps += 1

    def flush(self):
        """Do not lose what is left at the end of an epoch."""
        if self.pending:  # <- culprit
            self.apply()  # <- culprit


def make(world):
    g = torch.Generator().manual_seed(8)
    per_rank = 30                      # 10 micro-batches of 3 on every rank
    x = torch.randn(per_rank * world, 10, generator=g)
    y = torch.randint(0, 3, (per_rank * world,), generator=g)
    return TensorDataset(x, y)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1234)
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.GELU(), nn.Linear(20, 3)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    data = make(world)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=3, sampler=sampler)
    acc = Accumulator(model, opt, ACCUM)
    crit = nn.CrossEntropyLoss()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        losses = [acc.backward(x, y, crit) for x, y in loader]
        acc.flush()  # <- culprit
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: {mean.item() / world:.4f} after {acc.steps} steps", flush=True)
    norm = sum(p.detach().double().pow(2).sum() for p in model.parameters()).sqrt()
    print(f"rank {rank}: norm {norm.item():.8f}", flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
