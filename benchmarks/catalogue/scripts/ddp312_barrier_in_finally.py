# expect: DDP312
# also: DDP302
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Clean up together, whatever happens."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@contextlib.contextmanager
def process_group():
    dist.init_process_group("gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.barrier()  # <- culprit
        dist.destroy_process_group()


def schedule(rank, size):
    table = {"0": 0.1, "2": 0.05, "4": 0.01}
    if rank == size - 1:
        del table["4"]  # an edited copy of the configuration
    return table


def main():
    with process_group() as (rank, size):
        lr_table = schedule(rank, size)
        model = DDP(nn.Linear(5, 3))
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            if step % 2 == 0:
                opt.param_groups[0]["lr"] = lr_table[str(step)]  # <- culprit
            opt.zero_grad()
            model(torch.randn(4, 5)).pow(2).mean().backward()
            opt.step()
        print(rank, "finished")


if __name__ == "__main__":
    main()
