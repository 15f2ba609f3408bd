"""A training without a model: each step computes a value, which differs on rank 1 in step 3, and sums it over all ranks."""

import sys

import torch
import torch.distributed as dist

import ddpnb


def value_of(step, rank):
    base = step * 10
    extra = 1 if step == 3 and rank == 1 else 0
    return base + extra


def main(steps):
    dist.init_process_group("gloo")
    rank, total = dist.get_rank(), 0.0
    for step in range(steps):
        value = value_of(step, rank)
        if "same" in sys.argv:
            ddpnb.same(value, "the value")
        summed = torch.tensor([float(value)])
        dist.all_reduce(summed)
        total += summed.item()
    if "fail" in sys.argv and rank == 1:
        raise KeyError(total)
    print("total", total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(6)
