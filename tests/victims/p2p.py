"""Point-to-point calls that never meet."""
import sys

import torch
import torch.distributed as dist


def both_receive(rank):
    if rank < 2:
        x = torch.zeros(4)
        dist.recv(x, src=1 - rank)  # culprit: both_receive
        dist.send(x, dst=1 - rank)


def ring(rank):
    size = dist.get_world_size()
    x = torch.zeros(4)
    dist.recv(x, src=(rank - 1) % size)  # culprit: ring
    dist.send(x, dst=(rank + 1) % size)


def other_tag(rank):
    x = torch.zeros(4_000_000)
    if rank == 0:
        dist.send(x, dst=1, tag=5)
        dist.barrier()
    elif rank == 1:
        dist.recv(x, src=0, tag=7)  # waiting: other_tag
        dist.barrier()


def never_sent(rank):
    if rank == 3:
        dist.recv(torch.zeros(2), src=0)  # waiting: never_sent


def thrown_away(rank):
    import time

    if rank == 0:
        dist.isend(torch.ones(4), dst=1)
    elif rank == 1:
        time.sleep(0.5)
        dist.recv(torch.zeros(4), src=0)  # waiting: thrown_away


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
