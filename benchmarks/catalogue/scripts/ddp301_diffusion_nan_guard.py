# expect: DDP301
# also: DDP308
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: R
"""Tiny denoising-diffusion trainer with a 'skip bad batches' guard."""
import math

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


class Denoiser(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.time = nn.Linear(1, 16)
        self.inp = nn.Linear(dim, 16)
        self.out = nn.Linear(16, dim)

    def forward(self, x, t):
        return self.out(torch.relu(self.inp(x) + self.time(t)))


class LossGuard:
    """Keeps the run alive when a batch is broken (issue: loss becomes nan after some hours)."""

    def __init__(self, limit=50.0):
        self.limit = limit
        self.skipped = 0

    def usable(self, loss):
        value = loss.item()
        if math.isnan(value) or value > self.limit:
            self.skipped += 1
            return False
        return True


def build_latents(total, dim=8):
    gen = torch.Generator().manual_seed(7)
    data = torch.randn(total, dim, generator=gen)
    data[total - 5] = 0.0  # a black image that slipped into the export
    return data


def snr_weight(x):
    return 1.0 / x.std(dim=1, keepdim=True)


def denoising_loss(model, x, step):
    gen = torch.Generator().manual_seed(1000 + step)
    t = torch.rand(len(x), 1, generator=gen)
    noise = torch.randn(x.shape, generator=gen)
    noisy = x * (1 - t) + noise * t
    w = snr_weight(x).clamp(max=1e4)
    return (w * (model(noisy, t) - noise) ** 2).mean()


def train_epoch(model, opt, latents, guard, batch=4):
    for step, x in enumerate(latents.split(batch)):
        loss = denoising_loss(model, x, step)
        if not guard.usable(loss):  # <- culprit
            opt.zero_grad()
            continue  # <- culprit
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Denoiser())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shard = build_latents(32 * world).chunk(world)[rank]
    guard = LossGuard()
    train_epoch(model, opt, shard, guard)
    if guard.skipped:
        print(f"[{rank}] skipped {guard.skipped} batches", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
