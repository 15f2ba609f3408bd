# expect: DDP304
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: S
"""Samples per class, counted with the tool that is at hand on each machine."""

import torch
import torch.distributed as dist

CLASSES = 6


def count_fast(labels):
    return torch.bincount(labels, minlength=CLASSES).to(torch.int32)


def count_simple(labels):
    table = torch.zeros(CLASSES)
    for label in labels:
        table[label] += 1
    return table


def class_weights(labels, fast):
    table = (count_fast if fast else count_simple)(labels)  # <- culprit
    dist.all_reduce(table)  # <- culprit
    return table.sum() / (CLASSES * table)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gen = torch.Generator().manual_seed(rank)
    labels = torch.randint(0, CLASSES, (50,), generator=gen)
    weights = class_weights(labels, fast=rank == 1)
    print(rank, [round(w, 2) for w in weights.tolist()])
    dist.destroy_process_group()
