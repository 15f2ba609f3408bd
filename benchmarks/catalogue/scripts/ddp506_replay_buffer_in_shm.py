# expect: DDP506
# also: DDP705
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
"""Actors fill a replay buffer in shared memory; the learner on the first rank asks for more than it may have."""

import resource
from multiprocessing import get_context, shared_memory

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH = 6


class ReplayBuffer:
    def __init__(self, transitions):
        size = 4 * WIDTH * transitions
        self.block = shared_memory.SharedMemory(create=True, size=size)  # <- culprit
        self.rows = np.ndarray((transitions, WIDTH), dtype=np.float32, buffer=self.block.buf)

    def sample(self, count, rng):
        return torch.from_numpy(self.rows[rng.randint(0, len(self.rows), count)])

    def close(self):
        self.rows = None
        self.block.close()
        self.block.unlink()


def act(name, transitions, seed):
    """An actor process: writes transitions into the learner's buffer."""
    block = shared_memory.SharedMemory(name=name)
    rows = np.ndarray((transitions, WIDTH), dtype=np.float32, buffer=block.buf)
    rows[:] = np.random.RandomState(seed).normal(size=rows.shape)
    del rows
    block.close()


def learn(rank):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, hard))  # the container's shared memory
    transitions = 1_000_000 if rank == 0 else 10_000  # <- culprit
    buffer = ReplayBuffer(transitions)  # <- culprit
    actor = get_context("fork").Process(target=act, args=(buffer.block.name, transitions, rank), daemon=True)
    actor.start()
    actor.join()
    rng = np.random.RandomState(rank)
    value = DDP(nn.Sequential(nn.Linear(WIDTH - 1, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(value.parameters(), lr=1e-3)
    for _ in range(5):
        rows = buffer.sample(32, rng)
        loss = nn.functional.mse_loss(value(rows[:, :-1]), rows[:, -1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    buffer.close()


dist.init_process_group("gloo")
learn(dist.get_rank())
dist.destroy_process_group()
