"""Train a policy whose loss is a method of the model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))

    def forward(self, obs):
        return self.net(obs)

    def log_prob(self, logits, action):
        return torch.log_softmax(logits, 1).gather(1, action[:, None]).squeeze(1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Policy())
    policy = model.module
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(10):
        obs, action, advantage = torch.randn(32, 6), torch.randint(0, 3, (32,)), torch.randn(32)
        logits = policy(obs)
        loss = -(policy.log_prob(logits, action) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
