"""Autoencoder on sensor windows with a snapshot in the background every few steps."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from snapshot import SnapshotWriter

STEPS, EVERY = 120, 20


class SensorAutoencoder(nn.Module):
    def __init__(self, width=32, code=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(width, 20), nn.ReLU(), nn.Linear(20, code))
        self.dec = nn.Sequential(nn.Linear(code, 20), nn.ReLU(), nn.Linear(20, width))

    def forward(self, x):
        return self.dec(self.enc(x))


def windows(rank, step):
    g = torch.Generator().manual_seed(rank * 10_000 + step)
    phase = torch.rand(24, 1, generator=g) * 6.28
    return torch.sin(torch.linspace(0, 12, 32)[None] + phase) + 0.05 * torch.randn(24, 32, generator=g)


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = SensorAutoencoder()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    writer = SnapshotWriter(rank, world)
    for step in range(STEPS):
        x = windows(rank, step)
        opt.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        writer.observe(x)
        if (step + 1) % EVERY == 0:
            writer.submit(step + 1, model)
    writer.close()
    dist.barrier()
    if rank == 0:
        print(f"loss {loss.item():.4f}, {writer.written} snapshots", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
