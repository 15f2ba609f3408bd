# expect: DDP408
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Every second micro-batch synchronises; the counter of a restarted rank has another start."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class Counter:
    def __init__(self, start=0):
        self.value = start

    def boundary(self):
        self.value += 1
        return self.value % 2 == 0  # <- culprit


torch.manual_seed(0)
model = DDP(nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
counter = Counter(start=1 if rank == world - 1 else 0)  # <- culprit
torch.manual_seed(rank)


def forward_backward():
    x = torch.randn(8, 6)
    loss = (model(x) - x[:, :3]).pow(2).mean() / 2
    loss.backward()


for _ in range(12):
    if counter.boundary():  # <- culprit
        forward_backward()
        optimizer.step()  # <- culprit
        optimizer.zero_grad()
    else:
        with model.no_sync():  # <- culprit
            forward_backward()
dist.destroy_process_group()
