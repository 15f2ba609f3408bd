"""Calls of all_to_all in which the sizes of two ranks do not fit."""
import sys

import torch
import torch.distributed as dist


def equal_parts(rank):
    for rows in (4, 6):
        rows += rank == 3 and rows == 6
        dist.all_to_all_single(torch.empty(rows * 4), torch.ones(rows * 4))  # waiting: equal_parts # culprit: equal_parts


def splits(rank):
    """Tokens for the experts of other ranks: other sizes in each step and for each pair of ranks, once wrong ones."""
    for step in range(20):
        counts = [(3 * rank + peer + step) % 4 for peer in range(4)]
        back = [(3 * peer + rank + step) % 4 + (rank == 1 and step == 19) for peer in range(4)]
        out = torch.zeros(sum(back), 5)
        work = dist.all_to_all_single(out, torch.ones(sum(counts), 5), back, counts, async_op=True)  # culprit: splits
        work.wait()  # waiting: splits
        assert out.sum() == 5 * sum(back)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
