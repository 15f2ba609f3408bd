import torch
from torch import nn
import torch.nn.functional as F


class SeriesLM(nn.Module):
    def __init__(self, vocab=32, dim=24, patch=4):
        super().__init__()
        self.patch = nn.Linear(patch, dim)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, patches):
        h, _ = self.decoder(self.patch(patches))
        return self.lm_head(h)

    def compute_loss(self, batch):
        logits = self(batch["patches"])
        return F.cross_entropy(logits.flatten(0, 1), batch["tokens"].flatten())

    @torch.no_grad()
    def generate(self, patches):
        return self(patches).argmax(-1)
