# expect: DDP302
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
# Re-enacts: accelerate / pytorch forum "squeeze() on the last batch of one sample" in gather_for_metrics loops
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def collect(t):
    """Scalars are averaged over the processes, vectors concatenated."""
    world = dist.get_world_size()
    if t.dim() == 0:  # <- culprit
        t = t.float()
        dist.all_reduce(t)  # <- culprit
        return t / world
    parts = [torch.zeros_like(t) for _ in range(world)]
    dist.all_gather(parts, t)
    return torch.cat(parts)


def batches(x, y, size):
    for i in range(0, len(x), size):
        yield x[i:i + size], y[i:i + size]


@torch.no_grad()
def validate(model, shard, batch_size):
    model.eval()
    seen = []
    for x, y in batches(*shard, batch_size):
        score = torch.sigmoid(model(x)).squeeze()  # <- culprit
        hit = (score > 0.5).float() - y.squeeze()
        seen.append(collect(hit))  # <- culprit
    model.train()
    return torch.cat([s.reshape(-1) for s in seen]).abs().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)

    g = torch.Generator().manual_seed(2)
    x = torch.randn(16 * world, 6, generator=g)
    y = (x[:, :1] > 0).float()
    xv, yv = x[:8 * world - 3], y[:8 * world - 3]
    train = (x[rank::world], y[rank::world])
    val = (xv[rank * 8:(rank + 1) * 8], yv[rank * 8:(rank + 1) * 8])

    for epoch in range(args.epochs):
        for xb, yb in batches(*train, args.batch_size):
            opt.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(xb), yb).backward()
            opt.step()
        err = validate(model, val, args.batch_size)
        if rank == 0:
            print(f"epoch {epoch}: error {err:.3f}", flush=True)
    dist.destroy_process_group()


main()
