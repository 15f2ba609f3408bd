# expect: DDP310
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Average the parameters of a model, several at a time."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


def average(parameter):
    dist.all_reduce(parameter)  # <- culprit
    parameter /= dist.get_world_size()
    return parameter.norm().item()


def local_training(net, steps=3):
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(steps):
        x = torch.randn(4, 8)
        opt.zero_grad()
        (net(x) - x.flip(1)).square().mean().backward()
        opt.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = Block()
    torch.manual_seed(dist.get_rank())
    with ThreadPoolExecutor(3) as pool:
        for _ in range(15):
            local_training(net)
            norms = list(pool.map(average, [p.data for p in net.parameters()]))
    print(dist.get_rank(), norms)
    dist.destroy_process_group()
