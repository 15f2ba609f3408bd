# expect: DDP309
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Meter:
    name = "?"

    def __init__(self):
        self.pair = torch.zeros(2)

    @property
    def weight(self):
        return self.pair[1].item()


class Recall(Meter):
    name = "recall"

    def add(self, logits, y):
        pos = y == 1
        self.pair += torch.stack([(logits.argmax(1)[pos] == 1).sum(), pos.sum()]).float()

    def reduce(self):
        dist.all_reduce(self.pair)  # <- culprit
        return (self.pair[0] / self.pair[1].clamp_min(1)).item()


class Specificity(Meter):
    name = "specificity"

    def add(self, logits, y):
        neg = y == 0
        self.pair += torch.stack([(logits.argmax(1)[neg] == 0).sum(), neg.sum()]).float()

    def reduce(self):
        dist.all_reduce(self.pair)  # <- culprit
        return (self.pair[0] / self.pair[1].clamp_min(1)).item()


def patients(total=64):
    g = torch.Generator().manual_seed(15)
    x = torch.randn(total, 7, generator=g)
    y = torch.zeros(total, dtype=torch.long)
    y[::9] = 1
    y[3::4] = 1                       # the fourth clinic only sends referred cases
    x[y == 1] += 0.6
    return x, y


def summary(meters):
    """Best-founded numbers first."""
    out = {}
    for meter in sorted(meters, key=lambda m: m.weight, reverse=True):  # <- culprit
        out[meter.name] = meter.reduce()  # <- culprit
    return out


def evaluate(model, x, y):
    meters = [Specificity(), Recall()]
    model.eval()
    with torch.no_grad():
        for xb, yb in zip(x.split(8), y.split(8)):
            logits = model(xb)
            for m in meters:
                m.add(logits, yb)
    model.train()
    return summary(meters)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 2)))
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    x, y = patients()
    x, y = x[rank::world], y[rank::world]
    for epoch in range(3):
        for xb, yb in zip(x.split(8), y.split(8)):
            opt.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            opt.step()
        print(rank, epoch, evaluate(model, x, y), flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
