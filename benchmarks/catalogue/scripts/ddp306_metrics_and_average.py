# expect: DDP306
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: H
"""A moving average of the weights and the metrics each have a group of their own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Averager:
    def __init__(self, net, group):
        self.shadow = [p.detach().clone() for p in net.parameters()]
        self.group = group

    def update(self, net, decay=0.9):
        for s, p in zip(self.shadow, net.parameters(), strict=True):
            s.lerp_(p.detach(), 1 - decay)
            dist.all_reduce(s, group=self.group)  # <- culprit
            s /= dist.get_world_size(self.group)


def report(loss, group):
    value = loss.detach().clone()
    dist.all_reduce(value, group=group)  # <- culprit
    return value.item() / dist.get_world_size(group)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    average_group = dist.new_group()
    metrics_group = dist.new_group()
    model = DDP(nn.Linear(6, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    averager = Averager(model.module, average_group)
    verbose = rank == size - 1  # prints before anything else
    for step in range(6):
        loss = model(torch.randn(4, 6)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if verbose and step == 3:  # <- culprit
            print("loss", report(loss, metrics_group))
            averager.update(model.module)  # <- culprit
        else:
            averager.update(model.module)
            report(loss, metrics_group)
    dist.destroy_process_group()


main()
