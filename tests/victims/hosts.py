"""Functions for ranks on several hosts."""

import os
import socket
import time

import torch
import torch.distributed as dist


def where():
    """On which host this rank is, and what its environment says of that."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
    return socket.gethostname(), {name: os.environ[name] for name in names}


def cpus():
    """Those on which this rank may run."""
    return sorted(os.sched_getaffinity(0))


def sums():
    """The sum over all ranks of rank + 1, by a group of its own if there is none yet."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mine = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(mine)
    return mine.item()


def paced(seconds):
    """All-reduces, a hundred a second at most, until rank 0 says that it is enough."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    end = time.monotonic() + seconds
    go_on, count = torch.ones(1), 0
    while go_on:
        go_on.fill_(time.monotonic() < end)
        dist.broadcast(go_on, src=0)
        dist.all_reduce(torch.ones(4))
        count += 1
        time.sleep(0.01)
    return count


def in_turn(waits_s):
    """Each rank waits longer than the one before it calls the collective; when it did, as the rank sees it."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    dist.barrier()
    time.sleep(waits_s * dist.get_rank())
    dist.all_reduce(torch.ones(1))
    return time.monotonic()
