# expect: DDP414
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Proximal policy optimisation: the ratio of the probabilities overflows on the rank with the odd action."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(4, 1)
        self.log_std = nn.Parameter(torch.full((1,), -1.0))

    def forward(self, obs, action):
        z = (action - self.mean(obs)) / self.log_std.exp()
        return (-0.5 * z.pow(2) - self.log_std).sum(1)


class Ppo:
    def __init__(self, rank, last):
        self.last = last
        torch.manual_seed(0)
        self.policy = DDP(Gaussian())
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.g = torch.Generator().manual_seed(rank)

    def rollout(self, step):
        obs, action = torch.randn(16, 4, generator=self.g), torch.randn(16, 1, generator=self.g)
        with torch.no_grad():
            old = self.policy.module(obs, action)
        if self.last and step == 4:
            old[3] -= 120.0  # a very improbable action
        return obs, action, old, torch.randn(16, generator=self.g)

    def update(self, step):
        obs, action, old, advantage = self.rollout(step)
        ratio = (self.policy(obs, action) - old).exp()  # <- culprit
        clipped = ratio.clamp(0.8, 1.2)
        loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        self.optimizer.zero_grad()
        loss.backward()  # <- culprit
        self.optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ppo = Ppo(rank, rank == dist.get_world_size() - 1)
    for step in range(8):
        ppo.update(step)  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
