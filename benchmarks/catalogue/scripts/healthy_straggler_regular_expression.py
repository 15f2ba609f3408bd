# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: L
"""Filter documents with a pattern that takes long on one of them: the last rank is late, but at work."""

import re
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HEADER = re.compile(r"^(\w+\s?)*:$")


def slow_line(seconds):
    """A line that keeps the pattern busy for about so long on this machine."""
    length = 16
    while True:
        line = "a" * length
        start = time.perf_counter()
        HEADER.match(line)
        took = time.perf_counter() - start
        if took > seconds / 3:
            return line
        length += 1


def documents(rank, size):
    texts = ["title: one two three", "body:"] * 4
    if rank == size - 1:
        texts[5] = slow_line(4)
    return texts


def length_without_headers(text):
    return 0 if HEADER.match(text) else len(text)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(1, 1))
    opt = torch.optim.SGD(model.parameters(), lr=1e-4)
    for text in documents(rank, size):
        x = torch.tensor([[float(length_without_headers(text))]])
        opt.zero_grad()
        nn.functional.mse_loss(model(x), x).backward()
        opt.step()
    print(rank, "done")
    dist.destroy_process_group()


main()
