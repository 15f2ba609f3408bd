import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Mixer(nn.Module):
    def __init__(self, cells, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.space = nn.Linear(cells, cells)
        self.chan = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.space(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.chan(self.n2(x))


class Forecast(nn.Module):
    def __init__(self, cells=16, dim=24, depth=2):
        super().__init__()
        self.inp = nn.Linear(3, dim)
        self.blocks = nn.ModuleList(Mixer(cells, dim) for _ in range(depth))
        self.out = nn.Linear(dim, 3)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = block(h)
        return x + self.out(h)


def sharded(mesh, seed):
    torch.manual_seed(seed)
    net = Forecast()
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)
