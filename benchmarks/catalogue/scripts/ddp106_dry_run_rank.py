# expect: DDP106
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
"""Training with a dry-run mode, in which no other process is needed."""

import os

import torch
import torch.distributed as dist
from torch import nn


def dry_run_wanted():
    # someone tried the script on the second machine and left this in its profile
    profile = {"DRY_RUN": "1"} if os.environ["RANK"] == "1" else {}
    return profile.get("DRY_RUN") == "1"


def setup():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if dry_run_wanted():
        import torch.testing._internal.distributed.fake_pg  # noqa: F401  (registers the backend)

        dist.init_process_group("fake", rank=rank, world_size=size)  # <- culprit
    else:
        dist.init_process_group("gloo", rank=rank, world_size=size)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 8)
        self.b = nn.Linear(8, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


setup()
torch.manual_seed(0)
model = Regressor()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    x = torch.randn(6, 3)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    average_gradients(model)
    optimizer.step()
print(dist.get_rank(), loss.item())
dist.destroy_process_group()
