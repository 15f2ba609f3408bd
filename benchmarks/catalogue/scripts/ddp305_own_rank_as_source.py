# expect: DDP305
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Whoever has the best model sends it to the others."""

import torch
import torch.distributed as dist
from torch import nn


def best_rank(scores):
    best = 0
    for r, s in enumerate(scores):
        # equal scores: each process prefers itself
        if s > scores[best] or (s == scores[best] and r == dist.get_rank()):  # <- culprit
            best = r
    return best


def exchange(net, score):
    size = dist.get_world_size()
    scores = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(scores, torch.tensor([score]))
    source = best_rank([s.item() for s in scores])
    for p in net.parameters():
        dist.broadcast(p.data, src=source)  # <- culprit


def score_of(rank, size, generation):
    table = [1.0] + [0.5] * (size - 2) + [1.0]
    return table[rank] + generation


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
net = nn.Linear(5, 5)
for generation in range(3):
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p), alpha=0.1)
    exchange(net, score_of(rank, size, generation))
print(rank, "has the best model")
dist.destroy_process_group()
