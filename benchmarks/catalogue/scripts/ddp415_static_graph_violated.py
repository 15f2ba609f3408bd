# expect: DDP415
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""static_graph=True for speed, with a network that grows by a stage."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Growing(nn.Module):
    def __init__(self, dim=10):
        super().__init__()
        self.stages = nn.ModuleList(nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, 1)
        self.active = 1

    def forward(self, x):
        for stage in self.stages[: self.active]:  # <- culprit
            x = torch.relu(stage(x))
        return self.out(x)


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    for step in range(steps):
        model.module.active = 1 + step // 3  # <- culprit
        x = torch.randn(8, 10)
        loss = (model(x) - x.std(1, keepdim=True)).pow(2).mean()  # <- culprit
        optimizer.zero_grad()
        loss.backward()  # <- culprit
        optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(0)
train(DDP(Growing(), static_graph=True), 9)  # <- culprit
dist.destroy_process_group()
