# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.parametrizations import spectral_norm


class Generator(nn.Module):
    def __init__(self, z=4):
        super().__init__()
        self.z = z
        self.net = nn.Sequential(nn.Linear(z, 24), nn.ReLU(), nn.Linear(24, 2))

    def forward(self, noise):
        return self.net(noise)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            spectral_norm(nn.Linear(2, 24)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(24, 24)), nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(24, 1)))

    def forward(self, x):
        return self.net(x).squeeze(1)


class Trainer:
    def __init__(self):
        torch.manual_seed(31)
        self.G, self.D = DDP(Generator()), DDP(Discriminator())
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=2e-3, betas=(0.5, 0.9))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=4e-3, betas=(0.5, 0.9))
        torch.manual_seed(310 + dist.get_rank())

    def real(self, n):
        angle = torch.rand(n) * 2 * torch.pi
        return torch.stack([angle.cos(), angle.sin()], 1) + 0.02 * torch.randn(n, 2)

    def discriminator_step(self, n):
        with torch.no_grad():
            fake = self.G(torch.randn(n, self.G.module.z))
        scores = self.D(torch.cat([self.real(n), fake]))          # one forward for both halves
        loss = F.relu(1 - scores[:n]).mean() + F.relu(1 + scores[n:]).mean()
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.detach()

    def generator_step(self, n):
        # The critic is frozen here and gets no gradient: no need for its wrapper.
        self.D.requires_grad_(False)
        loss = -self.D.module(self.G(torch.randn(n, self.G.module.z))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.D.requires_grad_(True)
        self.opt_g.step()
        return loss.detach()


def digest(module):
    return torch.cat([t.detach().double().flatten() for t in module.state_dict().values()])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    t = Trainer()
    log = torch.zeros(2)
    for step in range(10):
        for _ in range(2):
            d = t.discriminator_step(16)
        g = t.generator_step(16)
        log = torch.stack([d, g])
        dist.all_reduce(log)
        log /= world
    assert torch.isfinite(log).all()
    for net in (t.G.module, t.D.module):
        mine = digest(net)
        others = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(others, mine)
        assert all(torch.equal(o, mine) for o in others)
    with torch.no_grad():
        for m in t.D.module.net:
            if isinstance(m, nn.Linear):
                assert torch.linalg.matrix_norm(m.weight, 2) < 1.3
    if rank == 0:
        print("critic %.3f generator %.3f" % tuple(log.tolist()))
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
