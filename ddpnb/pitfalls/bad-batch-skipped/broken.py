"""Train on sensor data; a batch that holds no proper numbers is left out."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def read(rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    batch = torch.randn(16, 8, generator=generator)
    if rank == 1 and step == 3:
        batch[5, 2] = float("nan")  # the sensor was not connected
    return batch


def check(batch):
    if not torch.isfinite(batch).all():
        raise ValueError("the batch is not finite")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        batch = read(rank, step)
        try:
            check(batch)
        except ValueError as error:
            print(f"rank {rank}, step {step}: {error}")
            continue
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
