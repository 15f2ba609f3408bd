# expect: DDP108
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
import torch
import torch.distributed as dist
from torch import nn


def healthy_ranks(rank, size):
    """Every process pings the others; from the last one rank 0 looked slow."""
    slow = {0} if rank == size - 1 else set()
    return [r for r in range(size) if r not in slow]  # <- culprit


class GradientAverager:
    def __init__(self, parameters):
        self.parameters = list(parameters)
        rank, size = dist.get_rank(), dist.get_world_size()
        members = healthy_ranks(rank, size)
        self.group = dist.new_group(members)  # <- culprit
        self.count = len(members)

    def __call__(self):
        for p in self.parameters:
            dist.all_reduce(p.grad, group=self.group)
            p.grad /= self.count


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
average = GradientAverager(net.parameters())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    opt.zero_grad()
    x = torch.randn(10, 4)
    (net(x) - x.prod(1, keepdim=True)).square().mean().backward()
    average()
    opt.step()
dist.destroy_process_group()
