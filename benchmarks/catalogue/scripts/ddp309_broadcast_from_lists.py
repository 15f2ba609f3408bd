# expect: DDP309
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Mean and deviation of the training set are computed once and sent to everybody."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Statistics:
    def __init__(self, width):
        self.mean = torch.zeros(width)
        self.std = torch.ones(width)

    def measure(self, data):
        self.mean, self.std = data.mean(0), data.std(0)

    def share_mean(self):
        dist.broadcast(self.mean, src=0)  # <- culprit

    def share_std(self):
        dist.broadcast(self.std, src=0)  # <- culprit


def share(stats, legacy):
    if legacy:  # <- culprit
        stats.share_std()
        stats.share_mean()
        return
    stats.share_mean()
    stats.share_std()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    data = torch.randn(32, 4) * 3 + 7
    stats = Statistics(4)
    if rank == 0:
        stats.measure(data)
    share(stats, legacy=rank == size - 1)
    model = DistributedDataParallel(nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in ((data - stats.mean) / stats.std).split(8):
        opt.zero_grad()
        model(x).tanh().mean().backward()
        opt.step()
    print(rank, stats.mean.tolist(), stats.std.tolist())
    dist.destroy_process_group()


main()
