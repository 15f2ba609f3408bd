"""Train on batches that are centred by the mean over all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def centre(batch):
    mean = batch.mean(0)
    dist.all_reduce(mean)
    return batch - mean / dist.get_world_size()


def collate(samples):
    return torch.stack(samples)


def main():
    dist.init_process_group("gloo")
    data = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1, collate_fn=collate)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        model(centre(batch)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
