# expect: DDP605
# also: DDP410 DDP405
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""Resume: the weights reach everybody when the model is wrapped; Adam's moments do not."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def batch(g):
    x = torch.randn(16, 8, generator=g)
    return x, x.square().sum(1, keepdim=True)


def earlier_job():
    """A short run on one device, whose checkpoint is continued here."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(70)
    for _ in range(20):
        x, y = batch(g)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    return file


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = net()
    checkpoint = None
    if rank == 0:  # <- culprit
        checkpoint = torch.load(earlier_job())
        model.load_state_dict(checkpoint["model"])
    model = DDP(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    if checkpoint:  # <- culprit
        optimizer.load_state_dict(checkpoint["optimizer"])  # <- culprit
    g = torch.Generator().manual_seed(rank)
    for _ in range(10):
        x, y = batch(g)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank}: weights sum to {sum(p.sum().item() for p in model.parameters()):.5f}", flush=True)
    dist.destroy_process_group()


main()
