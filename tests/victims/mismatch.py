"""Different calls at the same place in the sequence."""
import sys

import torch
import torch.distributed as dist


def operation(rank):
    x = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(x)
    if rank == 2:
        dist.broadcast(x, src=0)  # culprit: operation
    else:
        dist.all_reduce(x)  # waiting: operation


def shape(rank):
    x = torch.ones(10 if rank != 3 else 12)
    dist.all_reduce(x)  # waiting: shape # culprit: shape


def dtype(rank):
    x = torch.ones(10, dtype=torch.float64 if rank == 1 else torch.float32)
    dist.all_reduce(x)  # waiting: dtype # culprit: dtype


def reduce_op(rank):
    dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX if rank == 0 else dist.ReduceOp.SUM)  # culprit: reduce_op


def root(rank):
    dist.broadcast(torch.ones(4), src=1 if rank == 3 else 0)  # culprit: root


def layout(rank):
    x = torch.arange(12.0).reshape(3, 4)
    x = x.t() if rank == 2 else x
    dist.all_reduce(x)  # culprit: layout


def swapped_functions(rank):
    def reduce_metrics():
        dist.all_reduce(torch.ones(2))  # waiting: swapped_functions

    def gather_metrics():
        dist.all_gather([torch.ones(2) for _ in range(4)], torch.ones(2))  # culprit: swapped_functions

    if rank == 1:
        gather_metrics()
    else:
        reduce_metrics()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
