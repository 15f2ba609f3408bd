# expect: DDP606
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Dropout and noise depend on the random state, which each rank saves with its part of the checkpoint."""

import random
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def model_and_optimizer():
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 1)))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def augment(x):
    if random.random() < 0.5:
        x = x.flip(0)
    return x + 0.1 * torch.randn_like(x)


def train(model, optimizer, steps):
    for _ in range(steps):
        x = augment(torch.randn(10, 6))
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def save(folder, rank, step, model, optimizer):
    torch.save(
        {
            "step": step,
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "torch_rng": torch.get_rng_state(),
            "python_rng": random.getstate(),
        },
        folder / f"rank{rank}.pt",
    )


def load(folder, rank, model, optimizer):
    checkpoint = torch.load(folder / f"rank{rank}.pt", weights_only=False)  # <- culprit
    model.module.load_state_dict(checkpoint["model"])  # <- culprit
    optimizer.load_state_dict(checkpoint["optimizer"])  # <- culprit
    return checkpoint["step"]


def seed(rank):
    random.seed(rank)
    torch.manual_seed(rank)


dist.init_process_group("gloo")
rank = dist.get_rank()
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    seed(rank)
    model, optimizer = model_and_optimizer()
    train(model, optimizer, 10)
    save(folder, rank, 10, model, optimizer)

    # the machine was taken away; the same script, a day later
    seed(rank)
    model, optimizer = model_and_optimizer()
    step = load(folder, rank, model, optimizer)  # <- culprit
    loss = train(model, optimizer, 20 - step)
    print(f"rank {rank} loss {loss:.4f}", flush=True)
dist.destroy_process_group()
