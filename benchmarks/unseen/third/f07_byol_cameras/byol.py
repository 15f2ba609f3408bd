"""Bootstrap-your-own-latent with the target network inside the module."""
import copy

import torch
from torch import nn
from torch.nn import functional as F


def encoder(inp, dim):
    return nn.Sequential(nn.Flatten(), nn.Linear(inp, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, dim))


class BYOL(nn.Module):
    min_contrast = 0.2

    def __init__(self, inp=64, dim=24, momentum=0.97):
        super().__init__()
        self.online = encoder(inp, dim)
        self.predict = nn.Sequential(nn.Linear(dim, 48), nn.ReLU(), nn.Linear(48, dim))
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.momentum = momentum

    def forward(self, a, b):
        pa, pb = self.predict(self.online(a)), self.predict(self.online(b))
        with torch.no_grad():
            ta, tb = self.target(a), self.target(b)
        return (2 - F.cosine_similarity(pa, tb, dim=1) - F.cosine_similarity(pb, ta, dim=1)).mean()

    @torch.no_grad()
    def update_target(self, views):
        # very dark pictures say little; do not let them pull the target
        if any(v.std() < self.min_contrast for v in views):
            return
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - self.momentum)
