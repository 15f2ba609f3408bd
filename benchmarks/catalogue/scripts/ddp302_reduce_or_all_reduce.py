# expect: DDP302
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Validation totals: the main process reports them, the last one writes the archive."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def total(value, writes_archive):
    if writes_archive:
        # the archive needs the total as well
        dist.all_reduce(value)  # <- culprit
    else:
        dist.reduce(value, dst=0)
    return value


def validate(net, writes_archive):
    loss = torch.zeros(1)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(6, 5)
            loss += nn.functional.mse_loss(net(x), x[:, :2])
    return total(loss, writes_archive)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(5, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for _ in range(3):
            x = torch.randn(6, 5)
            opt.zero_grad()
            nn.functional.mse_loss(model(x), x[:, :2]).backward()
            opt.step()
        loss = validate(model.module, writes_archive=rank == size - 1)
        print(rank, epoch, loss.item())
    dist.destroy_process_group()


main()
