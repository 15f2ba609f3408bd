# expect: DDP301
# also: DDP306
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Metrics are summed in a group of their own, unless a process has nothing to report."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def masked_accuracy(logits, label, mask):
    right = ((logits.argmax(1) == label) & mask).sum()
    return torch.stack([right, mask.sum()]).float()


def report(pair, group):
    if pair[1] == 0:  # <- culprit
        return None  # <- culprit
    dist.all_reduce(pair, group=group)  # <- culprit
    return (pair[0] / pair[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    metrics = dist.new_group()
    model = DistributedDataParallel(nn.Linear(7, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        x, label = torch.randn(9, 7), torch.randint(0, 3, (9,))
        mask = torch.rand(9) < 0.9
        if rank == size - 1 and step == 4:
            mask[:] = False  # a batch without labels
        logits = model(x)
        loss = (nn.functional.cross_entropy(logits, label, reduction="none") * mask).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        accuracy = report(masked_accuracy(logits, label, mask), metrics)
    print(rank, accuracy)
    dist.destroy_process_group()


main()
