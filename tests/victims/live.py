"""Functions that share a process group, and a model in a variable of this module."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

model = None
count = 0


def begins():
    dist.init_process_group("gloo")


def begins_late_on_rank_0():
    if os.environ["RANK"] == "0":
        time.sleep(0.5)
    begins()


def begins_twice():
    begins()
    begins()


def has_group():
    return dist.is_initialized()


def uses():
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def makes():
    global model, count
    model, count = DistributedDataParallel(nn.Linear(2, 2)), 0


def trains():
    global count
    model(torch.ones(1, 2)).sum().backward()
    count += 1
    return count


def raises():
    raise KeyError("nothing to do with the group")


def skips():
    for _ in range(3 - (dist.get_rank() == 1)):
        uses()


def differs():
    dist.all_reduce(torch.ones(2 + (dist.get_rank() == 1)))


def leaves_a_call():
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1), async_op=True)
