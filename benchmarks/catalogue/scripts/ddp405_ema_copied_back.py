# expect: DDP405
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
# Re-enacts: lucidrains/ema-pytorch #9 (EMA on rank 0 only, update_model_with_ema_every copies it back to the online model)
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EMA:
    def __init__(self, model, beta=0.9, update_model_with_ema_every=None):
        self.online = model
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.beta = beta
        self.every = update_model_with_ema_every
        self.step = 0

    @torch.no_grad()
    def update(self):
        self.step += 1
        for s, p in zip(self.shadow.parameters(), self.online.parameters()):
            s.lerp_(p, 1 - self.beta)
        if self.every and self.step % self.every == 0:
            self._reset_online()

    def _reset_online(self):
        # "switch EMA": the student restarts from its own average
        for s, p in zip(self.shadow.parameters(), self.online.parameters()):
            p.data.copy_(s.data)  # <- culprit


class NoEMA:
    def update(self):
        pass


class Diffuser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4))

    def forward(self, x, t, noise):
        a = t[:, None]
        noisy = (1 - a) * x + a * noise
        return (self.net(torch.cat([noisy, a], 1)) - noise).pow(2).mean()


class Trainer:
    def __init__(self, steps=6):
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(Diffuser())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.ema = EMA(self.model.module, update_model_with_ema_every=3) if self.is_main else NoEMA()  # <- culprit
        self.gen = torch.Generator().manual_seed(self.rank)
        self.steps = steps

    @property
    def is_main(self):
        return self.rank == 0

    def train(self):
        for step in range(self.steps):
            x = torch.randn(8, 4, generator=self.gen)
            t = torch.rand(8, generator=self.gen)
            loss = self.model(x, t, torch.randn(8, 4, generator=self.gen))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.ema.update()  # <- culprit
            if self.is_main:
                print(f"{step}: {loss.item():.4f}", flush=True)


dist.init_process_group("gloo")
Trainer().train()
dist.barrier()
dist.destroy_process_group()
