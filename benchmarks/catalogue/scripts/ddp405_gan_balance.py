# expect: DDP405
# also: DDP410
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""GAN on 2-d blobs; two optimizers, and the discriminator is held back when it wins too easily."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

bce = nn.BCEWithLogitsLoss()


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Balance:
    """Skip discriminator updates while its accuracy on real and fake is above the ceiling."""

    def __init__(self, ceiling=0.8):
        self.ceiling = ceiling
        self.held = 0

    def accuracy(self, logits, labels):
        return ((logits > 0) == (labels > 0.5)).float().mean().item()

    def allow(self, logits, labels):
        if self.accuracy(logits.detach(), labels) > self.ceiling:  # <- culprit
            self.held += 1
            return False
        return True


class GanTrainer:
    def __init__(self, real):
        torch.manual_seed(4)
        self.G, self.D = DDP(Generator()), DDP(Discriminator())
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=2e-3, betas=(0.5, 0.9))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=2e-3, betas=(0.5, 0.9))
        self.real, self.balance = real, Balance()
        self.noise = torch.Generator().manual_seed(50 + dist.get_rank())

    def z(self, n):
        return torch.randn(n, 4, generator=self.noise)

    def step_d(self, x):
        with torch.no_grad():
            fake = self.G(self.z(len(x)))
        labels = torch.cat([torch.ones(len(x)), torch.zeros(len(x))])
        logits = self.D(torch.cat([x, fake]))
        self.opt_d.zero_grad()
        bce(logits, labels).backward()
        if self.balance.allow(logits, labels):  # <- culprit
            self.opt_d.step()  # <- culprit

    def step_g(self, n):
        logits = self.D(self.G(self.z(n)))
        self.opt_g.zero_grad()
        bce(logits, torch.ones(n)).backward()
        self.opt_g.step()

    def fit(self, epochs=2, batch=16):
        for _ in range(epochs):
            for x in self.real.split(batch):
                self.step_d(x)
                self.step_g(len(x))


def real_points(rank, world):
    gen = torch.Generator().manual_seed(rank)
    centre = torch.tensor([6.0, 6.0]) if rank == world - 1 else torch.zeros(2)
    return torch.randn(96, 2, generator=gen) * 0.1 + centre


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainer = GanTrainer(real_points(rank, dist.get_world_size()))
    trainer.fit()
    size = sum(p.norm() for p in trainer.D.parameters()).item()
    print(f"[{rank}] D held back {trainer.balance.held} times, |D| = {size:.5f}", flush=True)
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()
