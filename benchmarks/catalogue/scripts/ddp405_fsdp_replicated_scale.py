# expect: DDP405
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""Sharded blocks (FSDP2); the root with its small output scale is left out of the sharding."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.scale = nn.Parameter(torch.ones(dim))  # <- culprit

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x * self.scale


def build():
    torch.manual_seed(0)
    net = Net()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in net.blocks:  # <- culprit
        fully_shard(block, mesh=mesh)  # <- culprit
    return net


dist.init_process_group("gloo")
net = build()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
g = torch.Generator().manual_seed(dist.get_rank())
for _ in range(8):
    x = torch.randn(4, 8, generator=g)
    loss = (net(x) - 2 * x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
