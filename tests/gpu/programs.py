"""What the ranks of these tests run: functions, which find their device as any script does.

The tests of ``tests/nccl_like`` run them on a stand-in for a GPU and NCCL.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests import nccl_like

KEPT = []  # the model of the last run: it can be compared afterwards


def device():
    return torch.device(os.environ.get(nccl_like.CHOSEN) or os.environ["DDPNB_DEVICE"])


def begin(backend=None):
    if backend is None and os.environ.get(nccl_like.CHOSEN):
        backend = nccl_like.BACKEND
        if dist.is_initialized() and dist.get_backend() != backend:
            dist.destroy_process_group()  # that of a world whose rank was replaced
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


def hurried(seconds, steps):
    """Calls in a group with a short time-out."""
    here = begin()
    group = dist.new_group(timeout=timedelta(seconds=seconds))
    KEPT[:] = [group]
    total = torch.ones(4, device=here)
    for step in range(steps):  # noqa: B007 (a condition of a hold)
        dist.all_reduce(total, group=group)
    return total.sum().item()


def kept_seconds():
    """The time-out of the group of ``hurried``."""
    return KEPT[0]._get_backend(device()).options._timeout.total_seconds()


def skips(seconds):
    """Rank 1 never makes the second call in a group with a short time-out."""
    here = begin()
    group = dist.new_group(timeout=timedelta(seconds=seconds))
    total = torch.ones(4, device=here)
    dist.all_reduce(total, group=group)
    if dist.get_rank() == 0:
        dist.all_reduce(total, group=group)
    return total.sum().item()


def other_sizes():
    here = begin()
    total = torch.ones(4 + dist.get_rank(), device=here)
    dist.all_reduce(total)
    return total.sum().item()


def crossed():
    """Two groups, used in another order on each rank."""
    here = begin()
    groups = [dist.group.WORLD, dist.new_group()]
    total = torch.ones(4, device=here)
    for group in groups if dist.get_rank() == 0 else groups[::-1]:
        dist.all_reduce(total, group=group)
    return total.sum().item()


def beside(backend="nccl"):
    """Rank 1 does not call the second all_reduce in a group of NCCL, beside a default group of gloo."""
    here = begin("gloo")
    group = dist.new_group(backend=nccl_like.BACKEND if os.environ.get(nccl_like.CHOSEN) else backend)
    total = torch.ones(4, device=here)
    dist.all_reduce(total, group=group)
    if dist.get_rank() == 0:
        dist.all_reduce(total, group=group)
        return total.sum().item()
    return None


def runs_ahead():
    """Rank 1 leaves the loop early; the host of rank 0 queues all its calls, and waits where it needs the result."""
    here = begin()
    total = torch.ones(4, device=here)
    for step in range(20):
        if dist.get_rank() == 1 and step == 7:
            break
        dist.all_reduce(total)
    doubled = total * 2
    return doubled.sum().item()


def uneven_gather():
    here = begin()
    rank, size = dist.get_rank(), dist.get_world_size()
    found = [torch.empty(other + 1, device=here) for other in range(size)]
    dist.all_gather(found, torch.full((rank + 1,), float(rank), device=here))
    return [one.tolist() for one in found]
