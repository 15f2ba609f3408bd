"""Functions for ranks that are held, stepped, released."""

import os
import queue
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def steps(count, skips=-1):
    """All-reduces in a loop; rank 1 leaves one out."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = torch.zeros(4)
    for step in range(count):
        mine = step + (rank == 2)  # differs on one rank
        if rank == 1 and step == skips:
            continue
        dist.all_reduce(total)
    return [rank, mine]


def paced(count):
    """All-reduces in a loop, twenty a second at most."""
    dist.init_process_group("gloo")
    for _ in range(count):
        dist.all_reduce(torch.zeros(4))
        time.sleep(0.05)


def stands_in(*places):
    """Rank 1 stands in the first place, rank 2 in the second, and so on; all others wait for these."""
    rank = int(os.environ["RANK"])
    place = places[rank - 1] if 0 < rank <= len(places) else ""
    if place == "before start":
        time.sleep(1000)
    if place == "wrong port":
        os.environ["MASTER_PORT"] = "1"
    dist.init_process_group("gloo")
    if "new group" in places:
        dist.barrier() if place else dist.new_group()
    elif "backward" in places:
        model = DistributedDataParallel(nn.Linear(4, 4))
        for step in range(4):
            if place and step == 2:
                time.sleep(1000)
            try:
                model(torch.ones(2, 4)).sum().backward()
            except RuntimeError as error:
                print("caught", type(error).__name__, flush=True)
                raise
    elif place:
        {
            "sleep": lambda: time.sleep(1000),
            "queue": lambda: queue.Queue().get(),
            "lock": lambda: [lock := threading.Lock(), lock.acquire(), lock.acquire()],
            "loop": lambda: [None for _ in iter(int, 1)],
            "pipe": lambda: os.read(os.pipe()[0], 1),
            "receive": lambda: dist.recv(torch.ones(1), 0),
        }[place]()
    dist.all_reduce(torch.ones(2))


def trains(count):
    """Steps of DDP, whose all-reduces nobody waits for in Python."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(4, 4))
    for _ in range(count):
        model(torch.ones(2, 4)).sum().backward()


def shares():
    """Uses the group that there is."""
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def fails():
    raise ValueError("on all ranks")


def begins():
    """Makes a group of its own, whether there is one or not."""
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def catches():
    """A released rank that goes on: the exception is one that can be caught, once for each wait."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    told = []
    for _ in range(2):
        try:
            if rank != 1:
                dist.all_reduce(torch.ones(2))
            else:
                time.sleep(1000 if not told else 0)
        except RuntimeError as error:
            told.append(type(error).__name__)
    return told


if __name__ == "__main__":
    getattr(sys.modules[__name__], sys.argv[1])(*sys.argv[2:])
