# expect: DDP415
# ranks: 2 4
# culprits: 1
# outcome: divergence
# plain: S
"""The embedding starts frozen; it is released when the local loss is low enough."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.embed.weight.requires_grad = False
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))

    def forward(self, ids):
        return self.net(self.embed(ids).mean(1))


torch.manual_seed(0)
model = DDP(Model())  # <- culprit
optimizer = torch.optim.Adam(model.module.parameters(), lr=0.02)
g = torch.Generator().manual_seed(rank)
released = False
for step in range(12):
    ids = torch.randint(0, 12, (8, 4), generator=g)
    labels = torch.randint(0, 2, (8,), generator=g)
    if rank == 1:
        labels.zero_()  # an easy shard
    loss = nn.functional.cross_entropy(model(ids), labels)
    if loss.item() < 0.45 and not released:  # <- culprit
        model.module.embed.weight.requires_grad = True  # <- culprit
        released = True
        print("embedding released at step", step)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
