# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: adversarial training with two wrapped models and an average of the generator kept on every process.
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class EMA:
    def __init__(self, model, decay=0.9):
        self.avg = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for a, p in zip(self.avg.parameters(), model.parameters()):
            a.lerp_(p, 1 - self.decay)


class GAN:
    def __init__(self):
        torch.manual_seed(0)
        self.G = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)))
        self.D = DDP(nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)))
        self.ema = EMA(self.G.module)
        self.g_opt = torch.optim.Adam(self.G.parameters(), lr=1e-3)
        self.d_opt = torch.optim.Adam(self.D.parameters(), lr=1e-3)

    def step(self, real, z):
        with torch.no_grad():
            fake = self.G(z)
        both = self.D(torch.cat([real, fake]))
        r, f = both.chunk(2)
        d_loss = F.softplus(-r).mean() + F.softplus(f).mean()
        self.d_opt.zero_grad()
        d_loss.backward()
        self.d_opt.step()

        g_loss = F.softplus(-self.D(self.G(z))).mean()
        self.g_opt.zero_grad()
        g_loss.backward()
        self.g_opt.step()
        self.ema.update(self.G.module)
        return d_loss.item(), g_loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gan = GAN()
    gen = torch.Generator().manual_seed(rank)
    for it in range(5):
        d, g = gan.step(torch.randn(8, 6, generator=gen) + 2, torch.randn(8, 4, generator=gen))
        if rank == 0:
            print(f"{it}: D {d:.3f} G {g:.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
