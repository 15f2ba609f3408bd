"""A pipeline of which a stage counts its micro-batches in another way than the others."""
import sys

import torch
import torch.distributed as dist
from torch import nn


def micro_batches(rank, step):
    if rank == 3 and step == 3:
        return 3
    return 2


def one_micro_batch_more(rank):
    last = dist.get_world_size() - 1
    stage = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    for step in range(6):
        sent = []
        for _ in range(micro_batches(rank, step)):  # culprit: one_micro_batch_more
            x = torch.ones(2, 4)
            if rank > 0:
                dist.recv(x, src=rank - 1)
            x.requires_grad_()
            sent.append((x, stage(x)))
            if rank < last:
                dist.send(sent[-1][1].detach(), dst=rank + 1)
        for x, y in sent:
            grad = torch.ones(2, 4)
            if rank < last:
                dist.recv(grad, src=rank + 1)  # waiting: one_micro_batch_more
            y.backward(grad)
            if rank > 0:
                dist.send(x.grad, dst=rank - 1)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
