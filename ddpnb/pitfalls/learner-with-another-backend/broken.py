"""Policy gradient: all ranks play, and rank 0 learns, on a GPU where there is one."""

import os

import torch
import torch.distributed as dist
from torch import nn


def start():
    rank = int(os.environ["RANK"])
    dist.init_process_group("nccl" if rank == 0 else "gloo")  # the others play on processors
    learner = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return rank, learner if rank == 0 else torch.device("cpu")


def play(policy, device):
    states = torch.randn(32, 3, device=device)
    logp = torch.log_softmax(policy(states), 1)
    actions = torch.multinomial(logp.exp(), 1)
    return -(logp.gather(1, actions) * states.gather(1, actions)).mean()


def main():
    rank, device = start()
    torch.manual_seed(rank)
    policy = nn.Linear(3, 3).to(device)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    for _ in range(6):
        for parameter in policy.parameters():
            dist.broadcast(parameter.data, src=0)
        optimizer.zero_grad()
        play(policy, device).backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad)
        if rank == 0:
            optimizer.step()
    dist.destroy_process_group()


main()
