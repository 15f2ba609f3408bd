# expect: DDP704
# ranks: 2 4
# culprits: range(n)
# outcome: ok
# plain: L
# env: OMP_NUM_THREADS=64
"""OMP_NUM_THREADS is that of the node, and each rank believes it."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Patches(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        return torch.rand(3, 16, 16, generator=g), index % 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.conv(x).relu().mean((2, 3)))


torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # <- culprit
dist.init_process_group("gloo")
dataset = Patches()
loader = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

begun = time.monotonic()
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"{torch.get_num_threads()} threads a rank, {time.monotonic() - begun:.2f} s", flush=True)
dist.destroy_process_group()
