# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Automatic collection is off; each rank collects when it has enough rubbish, which is not at the same step."""

import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Node:
    def __init__(self, value, parent=None):
        self.value, self.parent, self.children = value, parent, []
        if parent:
            parent.children.append(self)


def search_tree(width, depth):
    """A tree whose nodes know their parents, and so go away only when collected."""
    root = Node(0)
    level = [root]
    for _ in range(depth):
        level = [Node(i, parent) for parent in level for i in range(width)]
    return root


gc.disable()
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

rubbish = 0
for step in range(12):
    root = search_tree(width=5 + rank, depth=5)
    rubbish += len(root.children) ** 5
    x = torch.randn(4, 5)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rubbish > 40_000:
        print(f"rank {rank} step {step}: {gc.collect()} objects collected", flush=True)
        rubbish = 0

gc.enable()
dist.barrier()
dist.destroy_process_group()
