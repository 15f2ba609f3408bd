"""Policy gradient on environments that run in processes of their own."""

import multiprocessing as mp

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def play(pipe, seed):
    rng = torch.Generator().manual_seed(seed)
    left = 6 if seed == 3 else 100  # steps of the episode
    while True:
        action = pipe.recv()
        left -= 1
        if left == 0:
            pipe.recv()
            left = 100
        state = torch.randn(3, generator=rng)
        pipe.send((state.tolist(), float(state[action])))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    pairs = [mp.Pipe() for _ in range(2)]
    for i, (_, theirs) in enumerate(pairs):
        mp.get_context("fork").Process(target=play, args=(theirs, 2 * rank + i), daemon=True).start()
    pipes = [mine for mine, _ in pairs]
    model = DistributedDataParallel(nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    states = torch.zeros(2, 3)
    for _ in range(10):
        logp = torch.log_softmax(model(states), 1)
        actions = torch.multinomial(logp.exp(), 1)
        for pipe, action in zip(pipes, actions, strict=True):
            pipe.send(action.item())
        states, rewards = map(torch.tensor, zip(*[pipe.recv() for pipe in pipes], strict=True))
        optimizer.zero_grad()
        (-logp.gather(1, actions).squeeze(1) * rewards).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
