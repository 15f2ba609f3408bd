# expect: DDP311
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: R
"""Decode records with a parser that asserts in native code."""

import os
import struct

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MAGIC = 0x52454331


def record(values, magic=MAGIC):
    return struct.pack(f"<II{len(values)}f", magic, len(values), *values)


def parse(raw):
    magic, count = struct.unpack_from("<II", raw)
    if magic != MAGIC:
        # the native parser: assert(header->magic == MAGIC)
        os.abort()  # <- culprit
    return torch.tensor(struct.unpack_from(f"<{count}f", raw, 8))


def records(rank, size):
    for i in range(12):
        broken = rank == size - 1 and i == 7
        yield record([0.1 * i] * 5, magic=0 if broken else MAGIC)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(5, 5))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for raw in records(rank, size):
        x = parse(raw)
        opt.zero_grad()
        (model(x) - x).pow(2).sum().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
