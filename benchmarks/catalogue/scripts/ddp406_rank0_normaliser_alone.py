# expect: DDP406
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""Policy gradient with a running normalisation of the observations, which only rank 0 keeps up to date."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("obs_mean", torch.zeros(4))
        self.register_buffer("obs_var", torch.ones(4))
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def observe(self, obs, rate=0.1):
        self.obs_mean.lerp_(obs.mean(0), rate)  # <- culprit
        self.obs_var.lerp_(obs.var(0), rate)  # <- culprit

    def forward(self, obs):
        return self.net((obs - self.obs_mean) / (self.obs_var + 1e-5).sqrt())


def rollout(g):
    obs = torch.randn(32, 4, generator=g) * 3 + 5
    return obs, torch.randint(0, 2, (32,), generator=g), torch.randn(32, generator=g)


torch.manual_seed(0)
policy = DDP(Policy(), broadcast_buffers=False)  # <- culprit
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
g = torch.Generator().manual_seed(rank)
for episode in range(10):
    obs, action, advantage = rollout(g)
    if rank == 0:  # <- culprit
        policy.module.observe(obs)  # <- culprit
    logp = torch.log_softmax(policy(obs), -1)[torch.arange(32), action]
    loss = -(logp * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
