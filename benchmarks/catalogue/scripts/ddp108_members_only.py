# expect: DDP108
# ranks: 2 4
# culprits: range(n // 2, n)
# outcome: hang
# plain: T
"""A group for the first half (it holds the teacher), then a group for logging."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    teachers = list(range(size // 2))

    teacher_group = None
    if rank in teachers:  # <- culprit
        teacher_group = dist.new_group(teachers)  # <- culprit
    log_group = dist.new_group()  # <- culprit

    model = DistributedDataParallel(nn.Linear(6, 6))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randn(8, 6)
        target = x.roll(1, dims=1)
        if teacher_group is not None:
            dist.all_reduce(target, group=teacher_group)
        loss = nn.functional.mse_loss(model(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        value = loss.detach().clone()
        dist.all_reduce(value, group=log_group)
    dist.destroy_process_group()


main()
