"""Train and report the mean loss; it is summed up in the background."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def step(model, optimizer, batch):
    loss = model(batch).square().mean()
    total = loss.detach().clone()
    work = dist.all_reduce(total, async_op=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    work.wait()
    mean = total / dist.get_world_size()
    return mean.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = [step(model, optimizer, torch.randn(16, 8) + rank) for _ in range(6)]
    print(f"rank {rank}: " + " ".join(f"{loss:.4f}" for loss in losses))
    dist.destroy_process_group()


main()
