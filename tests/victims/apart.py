"""Replicas that part at a step of the caller's choice, with numbered checkpoints on the way."""

import sys
import time

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


def leaves_early():
    ddpnb.checkpoint("ready")
    dist.all_reduce(torch.ones(2))
    ddpnb.checkpoint("reduced")
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(2))
        ddpnb.checkpoint("reduced again")
    else:
        time.sleep(0.1)


def with_three():
    """Hangs where there are at least three ranks."""
    dist.init_process_group("gloo")
    if dist.get_rank() != 2:
        dist.all_reduce(torch.ones(2))


class Scaled(nn.Module):
    """Knows of the world, and must not."""

    def forward(self, x):
        return x / dist.get_world_size()


def scaled(middle=Scaled, same_batch=False):
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 8), middle(), nn.ReLU(), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(0 if same_batch else rank)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


class Noisy(nn.Module):
    def forward(self, x):
        return x + 0.1 * dist.get_rank()


def noisy():
    scaled(Noisy, same_batch=True)


def sound():
    scaled(nn.Identity)


if __name__ == "__main__":
    train(*map(int, sys.argv[1:]))
