"""Train a policy on observations that are normalised by running statistics."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def observe(self, obs, rate=0.1):
        self.mean.lerp_(obs.mean(0), rate)
        self.var.lerp_(obs.var(0), rate)

    def forward(self, obs):
        return self.net((obs - self.mean) / (self.var + 1e-5).sqrt())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(Policy(), broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(10):
        obs = 3 * torch.randn(32, 4) + 5
        action, advantage = torch.randint(0, 2, (32,)), torch.randn(32)
        if rank == 0:
            model.module.observe(obs)
        logp = torch.log_softmax(model(obs), 1)[torch.arange(32), action]
        loss = -(logp * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
