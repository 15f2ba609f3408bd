# expect: DDP705
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Batches come from a worker as file descriptors; the last rank keeps them all to draw pictures at the end."""

import os
import resource

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Noise(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.randn(10, generator=torch.Generator().manual_seed(index)), float(index % 2)


def descriptors(more):
    now = len(os.listdir("/proc/self/fd"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (now + more, hard))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
dataset = Noise(120 * world)
loader = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset), num_workers=1)
model = DDP(nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

kept = []
descriptors(more=50)
for x, y in loader:  # <- culprit
    loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == world - 1:  # <- culprit
        kept.append((x, y))  # <- culprit

print(f"rank {rank} kept {len(kept)} batches", flush=True)
dist.destroy_process_group()
