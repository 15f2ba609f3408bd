# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Workers that live on over the epochs, started with spawn, with a slow start and a seed of their own."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info


class Noisy(Dataset):
    def __init__(self, count):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(count, 8, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        return x + 0.1 * torch.randn_like(x), random.random() < 0.01, x


def init_worker(number):
    random.seed(get_worker_info().seed)


def main():
    dist.init_process_group("gloo")
    dataset = Noisy(96)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(
        dataset,
        batch_size=8,
        sampler=sampler,
        num_workers=1,
        persistent_workers=True,
        prefetch_factor=4,
        worker_init_fn=init_worker,
        multiprocessing_context="spawn",
    )
    model = DDP(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for noisy, outlier, clean in loader:
            error = (model(noisy) - clean).square().mean(1)
            loss = (error * ~outlier).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
