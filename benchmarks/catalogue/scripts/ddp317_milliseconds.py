# expect: DDP317
# ranks: 2 4
# culprits: any
# outcome: crash
# plain: T
"""Between the epochs one process computes a report; the others wait for it in their own group."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WAIT = 1800


def report(net, seconds):
    """Bootstrap intervals: a lot of small sums, a few seconds of work."""
    end = time.perf_counter() + seconds
    means = []
    with torch.no_grad():
        values = net(torch.randn(200, 6)).flatten().tolist()
    while time.perf_counter() < end:
        picked = [values[(7 * i + len(means)) % 200] for i in range(0, 200, 3)]
        means.append(sum(picked) / len(picked))
    means.sort()
    return means[len(means) // 20], means[-len(means) // 20]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.barrier()
    checkpoints = dist.new_group(timeout=timedelta(milliseconds=WAIT))  # <- culprit
    model = DDP(nn.Linear(6, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for _ in range(3):
            x = torch.randn(8, 6)
            opt.zero_grad()
            nn.functional.mse_loss(model(x), x.amax(1, keepdim=True)).backward()
            opt.step()
        if rank == 0:
            print(epoch, report(model.module, seconds=5))
        dist.barrier(group=checkpoints)  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
