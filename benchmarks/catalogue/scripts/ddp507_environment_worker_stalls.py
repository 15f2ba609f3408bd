# expect: DDP507
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
"""Vectorised environments in child processes; the second rank's are one licence short."""

import multiprocessing as mp

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Walk:
    """A walk on a line in a simulator that needs a licence for as long as an episode lasts."""

    def __init__(self, seed, licences):
        self.g = torch.Generator().manual_seed(seed)
        self.licences = licences
        self.running = False

    def reset(self):
        if not self.running:
            self.licences.acquire()  # <- culprit
            self.running = True
        self.state = torch.randn(3, generator=self.g)
        return self.state

    def step(self, action):
        self.state = self.state + 0.1 * action
        return self.state, -self.state.abs().sum()


def env_worker(connection, seed, licences):
    env = Walk(seed, licences)
    while True:
        command, payload = connection.recv()
        if command == "reset":
            connection.send(env.reset())  # <- culprit
        elif command == "step":
            connection.send(env.step(payload))
        else:
            return


class VectorEnv:
    def __init__(self, seeds, licences):
        self.pipes, self.processes = [], []
        context = mp.get_context("fork")
        licences = context.Semaphore(licences)
        for seed in seeds:
            here, there = context.Pipe()
            process = context.Process(target=env_worker, args=(there, seed, licences), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def reset(self):
        for pipe in self.pipes:
            pipe.send(("reset", None))
        return torch.stack([pipe.recv() for pipe in self.pipes])  # <- culprit

    def step(self, actions):
        for pipe, action in zip(self.pipes, actions, strict=True):
            pipe.send(("step", action))
        states, rewards = zip(*[pipe.recv() for pipe in self.pipes], strict=True)
        return torch.stack(states), torch.stack(rewards)

    def close(self):
        for pipe in self.pipes:
            pipe.send(("close", None))


def main():
    rank = dist.get_rank()
    licences = {1: 1}.get(rank, 2)  # <- culprit
    envs = VectorEnv(seeds=[100 * rank, 100 * rank + 1], licences=licences)
    policy = DDP(nn.Linear(3, 3))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    for _ in range(5):
        states = envs.reset()  # <- culprit
        actions = policy(states)
        _, rewards = envs.step(actions.detach())
        loss = (actions.square().sum(1) * rewards.abs()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    envs.close()


dist.init_process_group("gloo")
main()
dist.destroy_process_group()
