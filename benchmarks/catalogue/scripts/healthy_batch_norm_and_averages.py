# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Batch norm with buffers from the first rank, averaged weights on the first rank alone, both as intended."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def rings(count=120):
    g = torch.Generator().manual_seed(16)
    label = torch.arange(count) % 3
    angle = 6.283 * torch.rand(count, generator=g)
    radius = label + 0.2 * torch.randn(count, generator=g)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), label)


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = rings()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=10, sampler=sampler)
    model = DDP(Net())
    average = AveragedModel(model.module) if rank == 0 else None
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if average is not None:
            average.update_parameters(model.module)
    if average is not None:
        print("averaged over", int(average.n_averaged), "epochs", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
