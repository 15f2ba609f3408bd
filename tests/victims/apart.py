"""Replicas that part at a step of the caller's choice, with numbered checkpoints on the way."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import ddpnb


def train(at, steps, culprit=1):
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    ddpnb.checkpoint("ready")
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        model(torch.randn(4, 128)).square().mean().backward()
        if rank == culprit and step == at:
            optimizer.param_groups[0]["lr"] = 0.02
        optimizer.step()  # culprit: step
        if step % 2 == 0:
            ddpnb.checkpoint("two more")
    ddpnb.checkpoint("trained")


if __name__ == "__main__":
    train(*map(int, sys.argv[1:]))
