# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""A number of rows that nothing divides: the sampler and the loader drop what is over, the same everywhere."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x = torch.randn(211, 3, generator=torch.Generator().manual_seed(10))
    dataset = TensorDataset(x, x.square().sum(1))
    sampler = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)
    steps = torch.tensor([len(loader)])
    lowest, highest = steps.clone(), steps.clone()
    dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    if lowest != highest:
        raise SystemExit(f"between {lowest.item()} and {highest.item()} batches a rank")
    model = DDP(nn.Sequential(nn.Linear(3, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, target in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs).squeeze(1), target).backward()
            optimizer.step()
    print(f"rank {rank}: 3 epochs of {steps.item()} batches", flush=True)
    dist.destroy_process_group()


main()
