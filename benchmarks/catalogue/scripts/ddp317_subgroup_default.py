# expect: DDP317
# ranks: 2 4
# culprits: range(n)
# outcome: ok
# plain: S
"""A short time-out for the job, so that it never hangs over night; statistics use a group of their own."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Statistics:
    def __init__(self):
        self.group = dist.new_group()  # <- culprit
        self.sums = torch.zeros(2)

    def add(self, loss, count):
        self.sums += torch.tensor([loss * count, count])

    def mean(self):
        total = self.sums.clone()
        dist.all_reduce(total, group=self.group)
        return (total[0] / total[1]).item()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    statistics = Statistics()
    model = DDP(nn.Linear(5, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        x = torch.randn(8, 5)
        loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True))
        opt.zero_grad()
        loss.backward()
        opt.step()
        statistics.add(loss.item(), len(x))
    print(dist.get_rank(), statistics.mean())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
