# expect: DDP501
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Policy gradient on a point that is to be pushed to the origin; every rank collects rollouts of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class PushToOrigin:
    """Eight points at once; an action is a push, the reward is minus the distance that is left."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.reset()

    def reset(self):
        self.position = torch.randn(8, 2, generator=self.g)
        return self.position

    def step(self, action):
        wind = 0.05 * torch.randn(8, 2, generator=self.g)
        self.position = self.position + 0.3 * action.tanh() + wind
        return self.position, -self.position.norm(dim=1)


class Learner:
    def __init__(self, seed):
        torch.manual_seed(seed)  # <- culprit
        self.env = PushToOrigin(seed=seed)  # <- culprit
        self.policy = DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.01)

    def rollout(self, horizon):
        states, actions, rewards = [], [], []
        state = self.env.reset()
        for _ in range(horizon):
            with torch.no_grad():
                action = self.policy.module(state) + 0.3 * torch.randn(8, 2)
            states.append(state)
            actions.append(action)
            state, reward = self.env.step(action)
            rewards.append(reward)
        return torch.cat(states), torch.cat(actions), torch.cat(rewards)

    def update(self):
        states, actions, rewards = self.rollout(horizon=5)  # <- culprit
        advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        logprob = -(self.policy(states) - actions).square().sum(1)  # <- culprit
        loss = -(logprob * advantage).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return rewards.mean().item()


def main(seed=0):
    dist.init_process_group("gloo")
    learner = Learner(seed)  # <- culprit
    for iteration in range(8):
        reward = learner.update()
    print(f"rank {dist.get_rank()}: mean reward {reward:.3f} after {iteration + 1} updates", flush=True)
    dist.destroy_process_group()


main()
