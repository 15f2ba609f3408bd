# expect: DDP506
# also: DDP705
# ranks: 2 4
# culprits: 1
# outcome: crash
# plain: E
"""Workers hand batches over in shared memory; the second rank's workers may only make small files there."""

import resource

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SHARED_MEMORY = {0: 64 << 20, 1: 256 << 10}


class Volumes(Dataset):
    def __init__(self, count, side=24):
        self.count, self.side = count, side

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        volume = torch.rand(1, self.side, self.side, self.side, generator=g)
        return volume, volume.mean().reshape(1)


def container_limits(worker_id):
    """The container's limit for files in /dev/shm, which is set for each rank."""
    allowed = SHARED_MEMORY.get(dist_rank, 64 << 20)
    resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, allowed))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(1, 2, 5, stride=4)
        self.head = nn.Linear(2, 1)

    def forward(self, volume):
        return self.head(self.conv(volume).relu().mean((2, 3, 4)))


dist.init_process_group("gloo")
dist_rank = dist.get_rank()
dataset = Volumes(16 * dist.get_world_size())
loader = DataLoader(  # <- culprit
    dataset, batch_size=8, sampler=DistributedSampler(dataset), num_workers=1, worker_init_fn=container_limits
)
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for volume, mean in loader:  # <- culprit
    loss = nn.functional.mse_loss(model(volume), mean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
