import torch
import torch.nn as nn


class Quantizer(nn.Module):
    def __init__(self, init, revive_every, beta=0.25):
        super().__init__()
        self.book = nn.Parameter(init.clone())
        self.beta = beta
        self.revive_every = revive_every
        self.usage = torch.zeros(len(init))
        self.steps = 0
        self.recent = None

    def forward(self, z):
        index = torch.cdist(z.detach(), self.book.detach()).argmin(1)
        code = self.book[index]
        loss = (code - z.detach()).pow(2).mean() + self.beta * (z - code.detach()).pow(2).mean()
        if self.training:
            self.usage += torch.bincount(index, minlength=len(self.book))
            self.recent = z.detach()
        return z + (code - z).detach(), loss

    @torch.no_grad()
    def after_step(self):
        self.steps += 1
        if self.steps % self.revive_every:
            return
        idle = (self.usage == 0).nonzero().flatten()
        for slot in idle.tolist():
            row = int(torch.randint(len(self.recent), (1,)))
            self.book[slot].copy_(self.recent[row])
        self.usage.zero_()
