"""Several groups: crossed orders, groups that not all make, ranks that never join."""
import os
import sys

import torch
import torch.distributed as dist


def crossed(rank):
    a = dist.new_group([0, 1])
    b = dist.new_group([0, 1])
    if rank > 1:
        return
    first, second = (a, b) if rank == 0 else (b, a)
    for group in (first, second):
        dist.all_reduce(torch.ones(4), group=group)  # culprit: crossed


def crossed_branches(rank):
    pair = dist.new_group([0, 1])
    x = torch.ones(4)
    if rank == 0:
        dist.all_reduce(x)  # culprit: crossed_branches
        dist.all_reduce(x, group=pair)
    else:
        if rank == 1:
            dist.all_reduce(x, group=pair)  # culprit: crossed_branches
        dist.all_reduce(x)  # waiting: crossed_branches


def skipped_in_group(rank):
    pair = dist.new_group([0, 1])
    x = torch.ones(4)
    if rank == 1:
        dist.all_reduce(x, group=pair)  # waiting: skipped_in_group
    dist.barrier()  # culprit: skipped_in_group # waiting: skipped_in_group


def not_made(rank):
    if rank == 2:
        return
    dist.new_group([0, 1, 2])  # waiting: not_made


def other_members(rank):
    dist.new_group([0, 1] if rank != 1 else [1, 2])  # waiting: other_members
    dist.barrier()  # waiting: other_members


if __name__ == "__main__":
    if sys.argv[1] == "absent":
        if os.environ["RANK"] != "3":
            dist.init_process_group("gloo")  # waiting: absent
    elif sys.argv[1] == "too_large":
        dist.init_process_group("gloo", world_size=8, rank=int(os.environ["RANK"]))  # culprit: too_large
    else:
        dist.init_process_group("gloo")
        globals()[sys.argv[1]](dist.get_rank())
