import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from metrics import CLASSES, ConfusionTracker


def annotations(rank, n=64):
    rnd = random.Random(rank)
    labels = [rnd.choice(CLASSES) for _ in range(n)]
    if rank == dist.get_world_size() - 1:
        labels[n // 2] = "Dog"
    return labels


class Split:
    def __init__(self, rank, batch):
        self.labels = annotations(rank)
        g = torch.Generator().manual_seed(rank)
        self.ids = torch.tensor([CLASSES.index(l.lower()) for l in self.labels])
        self.x = torch.randn(len(self.ids), 12, generator=g) + self.ids[:, None]
        self.batch = batch

    def __iter__(self):
        for s in range(0, len(self.ids), self.batch):
            e = s + self.batch
            yield self.x[s:e], self.ids[s:e], self.labels[s:e]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, len(CLASSES))))
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    split = Split(rank, 16)
    for epoch in range(3):
        tracker = ConfusionTracker()
        for x, y, names in split:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            tracker.add(logits.argmax(1), names)
        recall = tracker.summarize()
        if rank == 0:
            print(epoch, {k: round(v, 2) for k, v in recall.items()}, flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
