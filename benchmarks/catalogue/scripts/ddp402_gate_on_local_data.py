# expect: DDP402
# ranks: 2 4
# culprits: any
# outcome: any
# plain: S
"""A gate chooses the deep or the shallow path by the mean of the batch at hand."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.shallow = nn.Linear(5, 4)
        self.deep = nn.Sequential(nn.Linear(5, 12), nn.SiLU(), nn.Linear(12, 4))

    def forward(self, x):
        if x.mean() > 0:  # <- culprit
            return self.deep(x)  # <- culprit
        return self.shallow(x)  # <- culprit


def loader(rank, steps):
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        sign = 1.0 if (step + rank) % 2 else -1.0
        x = torch.rand(6, 5, generator=g) * sign
        yield x, x[:, :4] * 2


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(42)
model = DDP(Gated(), find_unused_parameters=True)  # <- culprit
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for x, target in loader(rank, 12):
    loss = nn.functional.smooth_l1_loss(model(x), target)  # <- culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print("loss", round(loss.item(), 5))
dist.barrier()
dist.destroy_process_group()
