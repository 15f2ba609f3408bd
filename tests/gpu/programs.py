"""What the ranks of these tests run: functions, which find their device as any script does."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

KEPT = []  # the model of the last run: it can be compared afterwards


def device():
    return torch.device(os.environ["DDPNB_DEVICE"])


def begin(backend=None):
    here = device()
    if here.type == "cuda":
        torch.cuda.set_device(here)
    if not dist.is_initialized():
        dist.init_process_group(backend)
    return here


def wrapped():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    KEPT[:] = [DistributedDataParallel(net.to(device()))]
    return KEPT[0]


def train(steps, edited=None, pause=0.0):
    """Train, and change a weight of this rank before a step; returns the device and the losses."""
    here = begin()
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        if edited == dist.get_rank() and step == steps // 2:
            with torch.no_grad():
                model.module[0].weight[1, 2] += 0.5
        loss = model(torch.ones(2, 8, device=here) * (dist.get_rank() + 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        time.sleep(pause)
    return str(here), losses


def sums(count):
    """The sum of each all-reduce: 4, 12, 20, ... on two ranks."""
    here = begin()
    found = []
    for step in range(count):
        x = torch.full((4,), float(step + dist.get_rank()), device=here)
        dist.all_reduce(x)
        found.append(x.sum().item())
    return found


def minutes():
    """The time-out of the group."""
    backend = dist.group.WORLD._get_backend(device())
    return backend.options._timeout.total_seconds() / 60


def leaves():
    """Rank 1 does not call the all_reduce: the others need its result and wait."""
    here = begin()
    model = wrapped()
    total = torch.ones(4, device=here)
    dist.all_reduce(total)
    weight = model.module[0].weight.detach()
    if dist.get_rank() == 1:
        return None
    dist.all_reduce(total)  # waits
    return total.sum().item() + weight.sum().item()


def computes(cycles):
    """A kernel that runs for long, and a line that needs its result."""
    here = begin()
    values = torch.arange(6.0, device=here)
    if here.type == "cuda":
        torch.cuda._sleep(cycles)
    else:
        time.sleep(8)
    return values.sum().item()  # needs it


def on_two_devices():
    here = begin()
    net = torch.nn.Sequential(torch.nn.Linear(8, 4).to(here), torch.nn.Linear(4, 1))
    DistributedDataParallel(net)


def inputs_elsewhere():
    begin()
    wrapped().module(torch.ones(2, 8))


def on_the_cpu():
    begin()
    dist.all_reduce(torch.ones(4))


def uneven_gather():
    here = begin()
    rank, size = dist.get_rank(), dist.get_world_size()
    found = [torch.empty(other + 1, device=here) for other in range(size)]
    dist.all_gather(found, torch.full((rank + 1,), float(rank), device=here))
    return [one.tolist() for one in found]
