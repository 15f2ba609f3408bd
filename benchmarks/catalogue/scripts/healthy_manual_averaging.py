# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Data parallelism without DDP: broadcast once, average the gradients, then clip."""

import torch
import torch.distributed as dist
from torch import nn


def broadcast(module):
    for tensor in (*module.parameters(), *module.buffers()):
        dist.broadcast(tensor.data, src=0)


def average(module):
    for p in module.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= dist.get_world_size()


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 8, batch_first=True)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = Lstm()
broadcast(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(10):
    x = torch.randn(4, 5, 3)
    loss = (net(x) - x.sum((1, 2))[:, None]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    average(net)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
dist.destroy_process_group()
