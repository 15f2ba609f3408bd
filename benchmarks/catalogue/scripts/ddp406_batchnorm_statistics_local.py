# expect: DDP406
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""BatchNorm with broadcast_buffers=False; every rank then validates its part with its own statistics."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def domain(rank, g):
    """Every rank reads the pictures of one camera."""
    return torch.randn(8, 1, 6, 6, generator=g) * (1 + rank) + 2.0 * rank, torch.randint(0, 3, (8,), generator=g)


def train(model, steps, g):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        x, y = domain(dist.get_rank(), g)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(net, g):
    net.eval()
    with torch.no_grad():
        x, y = domain(0, g)
        hits = (net(x).argmax(1) == y).sum()
    dist.all_reduce(hits)
    return hits.item()


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(dist.get_rank())
    model = DDP(make_net(), broadcast_buffers=False)  # <- culprit
    train(model, 10, g)
    hits = validate(model.module, g)
    if dist.get_rank() == 0:
        print("correct", hits)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
