# expect: DDP110
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
# env: GLOO_SOCKET_IFNAME=enp97s0f0
"""Kept simple: average the weights of independently trained models."""

import torch
import torch.distributed as dist
from torch import nn


def train_alone(seed):
    torch.manual_seed(seed)
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(20):
        x = torch.randn(16, 4)
        opt.zero_grad()
        (net(x) - x @ torch.tensor([[1.0], [2.0], [3.0], [4.0]])).pow(2).mean().backward()
        opt.step()
    return net


def average(net):
    for p in net.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


dist.init_process_group("gloo")  # <- culprit
net = train_alone(dist.get_rank())
average(net)
print(net.weight.data.tolist())
dist.destroy_process_group()
