# expect: DDP307
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
"""Ring all-reduce, written out to understand it."""

import torch
import torch.distributed as dist


def ring_reduce(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    total = tensor.clone()
    outgoing = tensor.clone()
    incoming = torch.empty_like(tensor)
    for _ in range(size - 1):
        dist.recv(incoming, src=left)
        dist.send(outgoing, dst=right)
        total += incoming
        outgoing.copy_(incoming)
    return total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine = torch.full((4,), float(rank))
    total = ring_reduce(mine)
    if rank == 0:
        print(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
