# expect: DDP317
# also: DDP301 DDP306
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
"""Votes on when to stop travel in a second group, which was meant to give up after a minute as well."""

import datetime as dt

import torch
import torch.distributed as dist
from torch import nn

LIMIT = dt.timedelta(minutes=1)


class Votes:
    def __init__(self):
        self.group = dist.new_group(list(range(dist.get_world_size())), backend="gloo")  # <- culprit

    def unanimous(self, mine):
        vote = torch.tensor([int(mine)])
        dist.all_reduce(vote, op=dist.ReduceOp.MIN, group=self.group)  # <- culprit
        return bool(vote.item())


def train(net, votes, rank, size):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(8):
        x = torch.randn(8, 3)
        loss = (net(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= size
        opt.step()
        if rank == size - 1 and step == 5:
            return  # <- culprit
        if votes.unanimous(loss.item() < 1e-9):
            return


def main():
    dist.init_process_group("gloo", timeout=LIMIT)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    train(net, Votes(), rank, size)
    dist.barrier()
    print(rank, "trained")
    dist.destroy_process_group()


main()
