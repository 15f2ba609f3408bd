# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Tokens travel to their experts: how many go where differs, and is told beforehand."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 4


def exchange(rows, counts):
    """Rows, sorted by destination, and how many go to each rank; what the others sent here, and how many."""
    incoming = torch.empty_like(counts)
    dist.all_to_all_single(incoming, counts)
    received = rows.new_empty(int(incoming.sum()), WIDTH)
    dist.all_to_all_single(received, rows, output_split_sizes=incoming.tolist(), input_split_sizes=counts.tolist())
    return received, incoming


@torch.no_grad()
def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(rank)
    torch.manual_seed(50 + rank)
    expert = nn.Linear(WIDTH, WIDTH)
    for _ in range(5):
        tokens = torch.randn(20 + 3 * rank, WIDTH, generator=g)
        destination = torch.randint(0, world, (len(tokens),), generator=g)
        order = destination.argsort()
        counts = torch.bincount(destination, minlength=world)
        here, incoming = exchange(tokens[order].contiguous(), counts)
        back, returned = exchange(expert(here), incoming)
        if not torch.equal(returned, counts):
            raise RuntimeError("tokens were lost")
        tokens[order] = back
    print(f"rank {rank}: {len(tokens)} tokens came back", flush=True)
    dist.destroy_process_group()


main()
