"""Policy gradient: the policy is updated whenever the buffer of experience is full."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 64


def play(policy):
    """One episode; its length is random."""
    steps = torch.randint(5, 30, ()).item()
    obs = torch.randn(steps, 4)
    with torch.no_grad():
        action = torch.multinomial(policy(obs).softmax(1), 1).squeeze(1)
    return list(zip(obs, action, obs[:, 0], strict=True))


def update(model, optimizer, batch):
    obs, action, reward = map(torch.stack, zip(*batch, strict=True))
    logp = torch.log_softmax(model(obs), 1).gather(1, action[:, None]).squeeze(1)
    optimizer.zero_grad()
    (-logp * (reward - reward.mean())).mean().backward()
    optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    buffer = []
    for _ in range(40):
        buffer += play(model.module)
        if len(buffer) >= BATCH:
            update(model, optimizer, buffer[:BATCH])
            buffer.clear()
    dist.destroy_process_group()


main()
