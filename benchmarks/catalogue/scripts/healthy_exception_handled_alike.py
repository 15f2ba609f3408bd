# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""A batch that cannot be used on one rank is dropped by all: they agree on it before the forward pass."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BadRecord(ValueError):
    pass


class Reader:
    def __init__(self, rank):
        self.rank = rank
        self.g = torch.Generator().manual_seed(rank)

    def read(self, number):
        x = torch.randn(8, 5, generator=self.g)
        if number % 7 == 3 + self.rank % 2:
            raise BadRecord(f"record {number} of rank {self.rank}")
        return x


def all_agree(usable):
    flag = torch.tensor([int(usable)])
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


def batches(reader, count):
    for number in range(count):
        try:
            x = reader.read(number)
        except BadRecord as error:
            print("dropped:", error, flush=True)
            x = None
        if all_agree(x is not None):
            yield x


class Converged(Exception):
    pass


def fit():
    reader = Reader(dist.get_rank())
    model = DDP(nn.Linear(5, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for used, x in enumerate(batches(reader, count=20)):
        loss = nn.functional.mse_loss(model(x), -x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        if mean < 0.4 or used == 9:
            raise Converged(f"mean loss {mean.item():.3f} after {used + 1} batches")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    try:
        fit()
    except Converged as reason:
        print(f"rank {dist.get_rank()}: {reason}", flush=True)
        dist.barrier()
    finally:
        dist.destroy_process_group()
