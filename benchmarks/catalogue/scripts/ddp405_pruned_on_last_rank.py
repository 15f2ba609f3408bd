# expect: DDP405
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Magnitude pruning on the way; the amount is looked up in a table by rank-local time."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
PRUNE_AT = {4: 0.3}
START_STEP = 0 if rank < world - 1 else -100  # restarted worker counts anew


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(10, 40)
        self.down = nn.Linear(40, 10)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def prune_small(layer, amount):
    with torch.no_grad():
        flat = layer.weight.abs().flatten()
        limit = flat.kthvalue(max(1, int(amount * flat.numel()))).values
        layer.weight[layer.weight.abs() <= limit] = 0.0  # <- culprit


torch.manual_seed(5)
model = DDP(Mlp())
opt = torch.optim.SGD(model.parameters(), lr=0.02)
torch.manual_seed(rank)
for step in range(10):
    x = torch.randn(12, 10)
    loss = (model(x) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    elapsed = step - START_STEP
    if elapsed >= 100 + min(PRUNE_AT) and elapsed == 104:  # <- culprit
        prune_small(model.module.up, PRUNE_AT[4])  # <- culprit
dist.destroy_process_group()
