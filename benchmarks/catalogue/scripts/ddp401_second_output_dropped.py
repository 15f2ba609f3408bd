# expect: DDP401
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Actor and critic in one module; the policy is warmed up first, before the value loss is switched on."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ActorCritic(nn.Module):
    def __init__(self, observations=6, actions=3):
        super().__init__()
        self.trunk = nn.Linear(observations, 16)
        self.policy = nn.Linear(16, actions)
        self.value = nn.Linear(16, 1)

    def forward(self, obs):
        hidden = torch.tanh(self.trunk(obs))
        return self.policy(hidden), self.value(hidden).squeeze(-1)


WARM_UP = 4


def losses(model, obs, action, reward, step):
    logits, value = model(obs)  # <- culprit
    logp = torch.log_softmax(logits, -1).gather(1, action[:, None]).squeeze(1)
    policy_loss = -(logp * reward).mean()
    if step < WARM_UP:  # <- culprit
        return policy_loss  # <- culprit
    return policy_loss + 0.5 * (value - reward).pow(2).mean()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    agent = DDP(ActorCritic())  # <- culprit
    opt = torch.optim.Adam(agent.parameters(), lr=3e-3)
    torch.manual_seed(10 + dist.get_rank())
    for step in range(8):
        obs, action, reward = torch.randn(16, 6), torch.randint(0, 3, (16,)), torch.randn(16)
        loss = losses(agent, obs, action, reward, step)  # <- culprit
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


main()
