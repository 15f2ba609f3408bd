import torch
import torch.nn as nn
import torch.nn.functional as F


class Stage(nn.Module):
    VOCAB, DIM = 40, 16

    def __init__(self, rank, world):
        super().__init__()
        self.first, self.last = rank == 0, rank == world - 1
        if self.first or self.last:
            gen = torch.Generator().manual_seed(99)
            self.embed = nn.Embedding(self.VOCAB, self.DIM)
            with torch.no_grad():
                self.embed.weight.copy_(torch.randn(self.VOCAB, self.DIM, generator=gen))
        self.mix = nn.GRU(self.DIM, self.DIM, batch_first=True)

    def forward(self, x):
        h = self.embed(x) if self.first else x
        h = h + self.mix(h)[0]
        return F.linear(h, self.embed.weight) if self.last else h
