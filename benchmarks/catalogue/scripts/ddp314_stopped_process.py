# expect: DDP314
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""The scheduler suspends a process whose machine is wanted by a job of higher priority."""

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Scheduler:
    def __init__(self, preempt_at=None):
        self.preempt_at = preempt_at

    def tick(self, step):
        if step == self.preempt_at:
            os.kill(os.getpid(), signal.SIGSTOP)  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    scheduler = Scheduler(preempt_at=4 if rank == size - 1 else None)
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        scheduler.tick(step)  # <- culprit
        x = torch.randn(4, 10)
        opt.zero_grad()
        nn.functional.mse_loss(model(x), x).backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
