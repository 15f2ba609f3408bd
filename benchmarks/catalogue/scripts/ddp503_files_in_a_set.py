# expect: DDP503
# ranks: 2 4
# culprits: any
# outcome: any
# plain: S
"""Files of a folder, duplicates removed, sharded by index."""

import os
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def write_samples(folder, count=64):
    g = torch.Generator().manual_seed(8)
    for number in range(count):
        x = torch.randn(10, generator=g)
        torch.save((x, (x.sum() > 0).float()), os.path.join(folder, f"sample-{number:04d}.pt"))


class Folder(Dataset):
    def __init__(self, folder):
        names = {entry.name for entry in os.scandir(folder) if entry.name.endswith(".pt")}  # <- culprit
        self.paths = [os.path.join(folder, name) for name in names]  # <- culprit

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.load(self.paths[index])


dist.init_process_group("gloo")
rank = dist.get_rank()

shared = [None]
if rank == 0:
    shared[0] = tempfile.mkdtemp(prefix="samples-")
    write_samples(shared[0])
dist.broadcast_object_list(shared, src=0)

dataset = Folder(shared[0])  # <- culprit
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
model = DDP(nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for x, y in loader:  # <- culprit
    loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

dist.barrier()
if rank == 0:
    print("one pass over", len(dataset), "files, loss", round(loss.item(), 4))
    shutil.rmtree(shared[0])
dist.destroy_process_group()
