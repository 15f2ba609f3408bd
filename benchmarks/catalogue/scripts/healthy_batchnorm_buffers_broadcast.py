# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Batch normalisation the usual way: rank 0's statistics are broadcast before each forward pass."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()


class Block(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv = nn.Conv1d(a, b, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm1d(b)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(2, 8), Block(8, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.blocks(x).mean(-1))


torch.manual_seed(0)
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(15):
    x = torch.randn(8, 2, 12) * (1 + rank) + rank
    loss = nn.functional.cross_entropy(model(x), torch.randint(0, 2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if rank == 0:
    print({name: tuple(b.shape) for name, b in model.module.named_buffers()})
dist.barrier()
dist.destroy_process_group()
