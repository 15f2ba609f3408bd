# expect: DDP316
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Overlap: each gradient starts on its way as soon as it is there."""

import torch
import torch.distributed as dist
from torch import nn


class Overlapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.pending = []
        for p in net.parameters():
            p.register_post_accumulate_grad_hook(self.start)

    def start(self, p):
        p.grad /= dist.get_world_size()
        self.pending.append(dist.all_reduce(p.grad, async_op=True))

    def finish(self):
        for work in self.pending:
            work.wait()
        self.pending.clear()

    def forward(self, x):
        return self.net(x)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = Overlapped(nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 32)))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(rank)
for step in range(8):
    x = torch.randn(16, 32)
    loss = (model(x) - x.roll(1, 1)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- culprit
    model.finish()
print(rank, sum(p.sum().item() for p in model.parameters()))
dist.destroy_process_group()
