"""Train, and average the loss of the long sequences over all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LONG = 24


def mean_over_ranks(losses):
    total = torch.tensor(sum(losses), dtype=torch.float32)
    count = torch.tensor(len(losses))
    dist.all_reduce(total)
    dist.all_reduce(count)
    return (total / count).item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lengths = [12, 30, 18, 26] if rank == 0 else [10, 14, 9, 20]
    long_losses = []
    for length in lengths:
        loss = model(torch.randn(length, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if length > LONG:
            long_losses.append(loss.item())
    print(f"rank {rank}: loss of long sequences {mean_over_ranks(long_losses):.4f}")
    dist.destroy_process_group()


main()
