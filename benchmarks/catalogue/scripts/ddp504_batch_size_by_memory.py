# expect: DDP504
# also: DDP308
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""The first rank has less memory left (it keeps the averaged weights), so it gets smaller batches."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Averaged:
    def __init__(self, module, decay=0.9):
        self.module = copy.deepcopy(module)
        self.decay = decay

    @torch.no_grad()
    def update(self, module):
        for mine, theirs in zip(self.module.parameters(), module.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.decay)


def batch_size_for(rank):
    return 8 if rank == 0 else 16  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.randn(64 * world, 5, generator=torch.Generator().manual_seed(6))
    dataset = TensorDataset(x, x.mean(1, keepdim=True))
    sampler = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, batch_size=batch_size_for(rank), sampler=sampler)  # <- culprit

    model = DDP(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)))
    averaged = Averaged(model.module) if rank == 0 else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, target in loader:  # <- culprit
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), target).backward()
            optimizer.step()
            if averaged:
                averaged.update(model.module)
        dist.barrier()  # <- culprit
    if rank == 0:
        print("averaged weights", averaged.module[0].weight.norm().item(), flush=True)
    dist.destroy_process_group()


main()
