# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Two wrapped models with two optimisers, trained in turns."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Gan:
    def __init__(self):
        torch.manual_seed(0)
        self.g = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)))
        self.d = DDP(nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)))
        self.opt_g = torch.optim.Adam(self.g.parameters(), lr=2e-3, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.d.parameters(), lr=2e-3, betas=(0.5, 0.999))

    def discriminator_step(self, real):
        with torch.no_grad():
            fake = self.g(torch.randn(len(real), 4))
        score = self.d(torch.cat([real, fake]))
        loss = F.softplus(-score[: len(real)]).mean() + F.softplus(score[len(real) :]).mean()
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.item()

    def generator_step(self, n):
        self.d.requires_grad_(False)
        # the bare discriminator: its weights get no gradient here
        loss = F.softplus(-self.d.module(self.g(torch.randn(n, 4)))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        self.d.requires_grad_(True)
        return loss.item()


def main():
    dist.init_process_group("gloo")
    gan = Gan()
    torch.manual_seed(10 + dist.get_rank())
    for step in range(12):
        d = gan.discriminator_step(torch.randn(8, 6) * 0.5 + 2)
        g = gan.generator_step(8)
        if step % 6 == 0 and dist.get_rank() == 0:
            print(f"{step}: D {d:.3f} G {g:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
