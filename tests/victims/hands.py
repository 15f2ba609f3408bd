"""Functions for ranks that are held, stepped, released."""

import os
import queue
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
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


def parts_by(what):
    """All-reduces in a loop; rank 1 parts from the others in one way."""
    dist.init_process_group("gloo")
    rank, total = dist.get_rank(), torch.zeros(4)
    ends = 5 if what == "break" and rank == 1 else 8
    for step in range(8):
        odd = rank == 1 and step == 3
        if what == "continue" and odd:
            continue
        if step == ends:
            break
        try:
            if what == "exception" and odd:
                raise ValueError(step)
            if not (what == "if" and odd):
                _reduce(total, skips=what == "return" and odd)
        except ValueError:
            pass
        if what == "extra" and odd:
            dist.all_reduce(total)
    dist.all_reduce(total)
    return step


def _reduce(total, skips):
    if skips:
        return
    dist.all_reduce(total)


def trains_with_roles(steps):
    """Everything in which ranks may differ without harm."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pair, alone = dist.new_group([1, 2]), dist.new_group([0])
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def batches():
        for step in range(steps):
            for _ in range(rank):
                torch.rand(1)
            yield step, torch.ones(2 + rank, 4)

    for step, batch in batches():
        optimizer.zero_grad()
        if step % 3:
            with model.no_sync():
                model(batch).sum().backward()
        model(batch).sum().backward()
        optimizer.step()
        if rank == 0:
            print("step", step)
            dist.all_reduce(torch.ones(1), group=alone)
        elif rank < 3:
            for _ in range(step % 3):
                dist.all_reduce(torch.ones(1), group=pair)
        if rank == 0:
            dist.broadcast(torch.ones(2), 0)
        else:
            received = torch.empty(2)
            dist.broadcast(received, 0)
        if rank != 0:
            dist.barrier()  # rank 0 prepares something first
        if rank == 0:
            dist.barrier()
    with Join([model]):
        for _ in range(2 + rank):
            model(torch.ones(2, 4)).sum().backward()
    return step


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
