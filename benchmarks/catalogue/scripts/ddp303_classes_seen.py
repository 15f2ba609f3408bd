# expect: DDP303
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: A
"""Per-class accuracy: the vector has as many entries as classes were met."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def labels_for(rank, size, count=60):
    gen = torch.Generator().manual_seed(2)
    classes = 9 if rank == size - 1 else 10  # the rare class is in the other shards only
    return torch.arange(count) % classes, torch.randn(count, 10, generator=gen)


def per_class_hits(prediction, label):
    classes = int(label.max()) + 1
    hits = torch.zeros(classes)
    hits.index_add_(0, label, (prediction == label).float())
    return hits


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    label, x = labels_for(rank, size)
    model = DDP(nn.Linear(10, 10))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for start in range(0, len(x), 20):
        opt.zero_grad()
        nn.functional.cross_entropy(model(x[start : start + 20]), label[start : start + 20]).backward()
        opt.step()
    hits = per_class_hits(model.module(x).argmax(1), label)
    dist.all_reduce(hits)  # <- culprit
    if rank == 0:
        print(hits.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
