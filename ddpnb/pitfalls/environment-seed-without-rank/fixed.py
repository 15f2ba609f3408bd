"""Policy gradient: every rank plays its own environment and the gradients are averaged."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SEED = 7


class Balance:
    def __init__(self, seed):
        self.rng = torch.Generator().manual_seed(seed)

    def reset(self):
        self.state = torch.randn(8, 3, generator=self.rng)
        return self.state

    def step(self, action):
        noise = 0.1 * torch.randn(8, 3, generator=self.rng)
        self.state = 0.9 * self.state + (action[:, None] - 0.5) + noise
        return self.state, -self.state.square().sum(1)


def main():
    dist.init_process_group("gloo")
    seed = SEED + dist.get_rank()
    torch.manual_seed(seed)
    env = Balance(seed)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        logp = torch.log_softmax(model(env.reset()), 1)
        action = torch.multinomial(logp.exp(), 1).squeeze(1)
        _, reward = env.step(action)
        advantage = reward - reward.mean()
        loss = -(logp.gather(1, action[:, None]).squeeze(1) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
