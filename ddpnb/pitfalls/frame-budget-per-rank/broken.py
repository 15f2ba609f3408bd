"""Policy gradient until a budget of frames is used up."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUDGET = 400


def play(policy):
    """One episode; its length is random."""
    steps = torch.randint(10, 40, ()).item()
    obs = torch.randn(steps, 4)
    with torch.no_grad():
        action = torch.multinomial(policy(obs).softmax(1), 1).squeeze(1)
    return obs, action, obs[:, 0]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    frames = 0
    while frames < BUDGET:
        obs, action, reward = play(model.module)
        frames += len(obs)
        logp = torch.log_softmax(model(obs), 1).gather(1, action[:, None]).squeeze(1)
        loss = -(logp * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
