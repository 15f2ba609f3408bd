# expect: DDP101
# also: DDP102 DDP104
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: E
"""Ranks are numbered from one in this cluster's files, machines in the log too."""

import os

import torch
import torch.distributed as dist

os.environ["RANK"] = str(int(os.environ["RANK"]) + 1)  # <- culprit


def average(tensor):
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()


def main():
    dist.init_process_group("gloo")  # <- culprit
    me = dist.get_rank()
    estimate = torch.tensor([float(me)])
    for _ in range(5):
        estimate = average(estimate + torch.randn(1))
    if me == 1:
        print("estimate", estimate.item())
    dist.destroy_process_group()


main()
