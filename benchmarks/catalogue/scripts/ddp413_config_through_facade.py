# expect: DDP413
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""A facade over the model hands on unknown attributes, but only one level deep."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Agent:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def __getattr__(self, name):
        return getattr(self.__dict__["model"], name)  # <- culprit

    def update(self, obs, ret):
        self.optimizer.zero_grad()
        loss = (self.model(obs).squeeze(1) - ret).pow(2).mean()
        loss.backward()
        self.optimizer.step()

    def discounted(self, rewards):
        out, total = [], torch.zeros(())
        for r in reversed(rewards):
            total = r + self.gamma * total  # <- culprit
            out.append(total)
        return torch.stack(out[::-1])


class Value(nn.Module):
    gamma = 0.97

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, obs):
        return self.net(obs)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    agent = Agent(DDP(Value()))
    torch.manual_seed(dist.get_rank())
    agent.update(torch.randn(8, 4), torch.randn(8))
    for _ in range(4):
        obs, rewards = torch.randn(8, 4), torch.rand(8)
        agent.update(obs, agent.discounted(list(rewards)))  # <- culprit
    dist.destroy_process_group()


main()
