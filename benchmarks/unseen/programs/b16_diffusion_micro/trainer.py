import torch
from torch import nn

from noise import latents, noisy


class Denoiser(nn.Module):
    def __init__(self, dim=16, hidden=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, hidden), nn.SiLU(), nn.Linear(hidden, dim))

    def forward(self, x, t):
        return self.net(torch.cat([x, t], -1))


class DiffusionTrainer:
    def __init__(self, accelerator, max_loss=50.0):
        self.accelerator = accelerator
        self.max_loss = max_loss
        model = Denoiser()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.gen = torch.Generator().manual_seed(accelerator.process_index)

    def losses(self, epoch, count):
        for z in latents(self.accelerator.process_index, count):
            x, t, eps = noisy(z, self.gen)
            yield x, lambda: (self.model(x, t) - eps).square().mean()

    def run_epoch(self, epoch, count=14):
        done = 0
        for x, closure in self.losses(epoch, count):
            with self.accelerator.accumulate(self.model):
                if x.abs().max() > self.max_loss:
                    break
                self.accelerator.backward(closure())
                self.optimizer.step()
                self.optimizer.zero_grad()
            done += 1
        return done
