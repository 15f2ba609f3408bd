# expect: DDP303
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: A
"""Gradients are averaged in one flat vector; one process froze the first layer."""

import argparse

import torch
import torch.distributed as dist
from torch import nn


def flat_gradients(net):
    return torch.cat([p.grad.reshape(-1) for p in net.parameters() if p.grad is not None])  # <- culprit


def scatter_back(flat, net):
    offset = 0
    for p in net.parameters():
        if p.grad is not None:
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()


def train(args):
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, args.hidden), nn.ReLU(), nn.Linear(args.hidden, 1))
    if rank in args.freeze_on:
        net[0].requires_grad_(False)  # <- culprit
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(args.steps):
        x = torch.randn(10, 6)
        opt.zero_grad()
        (net(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        flat = flat_gradients(net)
        dist.all_reduce(flat)  # <- culprit
        scatter_back(flat / size, net)
        opt.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=12)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--freeze-on", type=int, nargs="*", default=[1])
    dist.init_process_group("gloo")
    train(parser.parse_args())
    dist.destroy_process_group()
