# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: L
"""The main process evaluates alone, on a large set and with plain Python, while the others wait for it."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def evaluate(net, seconds):
    end = time.perf_counter() + seconds
    total = pairs = 0
    with torch.no_grad():
        while time.perf_counter() < end:
            a = net(torch.randn(60, 4)).argmax(1).tolist()
            b = net(torch.randn(60, 4)).argmax(1).tolist()
            total += edit_distance(a, b)
            pairs += 1
    return total / pairs


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for _ in range(3):
            opt.zero_grad()
            model(torch.randn(8, 4)).logsumexp(1).mean().backward()
            opt.step()
        if rank == 0 and epoch == 1:
            print(f"epoch {epoch}: distance {evaluate(model.module, seconds=5):.2f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
