# expect: DDP411
# ranks: 2 4
# culprits: 0
# outcome: any
# plain: R
# Re-enacts: pytorch #20611, jpata/particleflow #233: an image logger on rank zero calls the wrapped model (buffers are broadcast in forward)
import functools

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def rank_zero_only(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:  # <- culprit
            return fn(*args, **kwargs)
        return None
    return wrapper


class Callback:
    def on_step_end(self, trainer, step):
        pass


class LossPrinter(Callback):
    @rank_zero_only
    def on_step_end(self, trainer, step):
        print(f"step {step} loss {trainer.last_loss:.4f}", flush=True)


class ReconstructionLogger(Callback):
    def __init__(self, every=2):
        self.every = every
        self.fixed = torch.linspace(-1, 1, 32).reshape(4, 8)
        self.images = []

    @rank_zero_only
    def on_step_end(self, trainer, step):
        if step % self.every != 1:
            return
        trainer.model.eval()
        with torch.no_grad():
            self.images.append(trainer.model(self.fixed))  # <- culprit
        trainer.model.train()


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU())
        self.dec = nn.Linear(6, 8)

    def forward(self, x):
        return self.dec(self.enc(x))


class Trainer:
    def __init__(self, callbacks, steps=6):
        self.callbacks, self.steps = callbacks, steps
        torch.manual_seed(0)
        self.model = DDP(AutoEncoder())
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def fit(self):
        gen = torch.Generator().manual_seed(dist.get_rank())
        for step in range(self.steps):
            x = torch.randn(8, 8, generator=gen)
            loss = (self.model(x) - x).square().mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.last_loss = loss.item()
            for cb in self.callbacks:
                cb.on_step_end(self, step)  # <- culprit


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer([LossPrinter(), ReconstructionLogger()]).fit()
    dist.destroy_process_group()
