import torch
import torch.nn as nn


class FrameEncoder(nn.Module):
    def __init__(self, dim=12, width=32, heads=2, classes=6, score_budget=200_000):
        super().__init__()
        self.heads, self.score_budget = heads, score_budget
        self.inp = nn.Linear(dim, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, classes)

    def _reserve(self, *shape):
        need = torch.Size(shape).numel()
        if need > self.score_budget:
            raise RuntimeError(f"out of memory: tried to allocate {4 * need} bytes for attention scores")

    def forward(self, feats):
        b, t, _ = feats.shape
        h = self.inp(feats)
        self._reserve(b, self.heads, t, t)
        q, k, v = self.qkv(h).chunk(3, -1)
        split = lambda z: z.view(b, t, self.heads, -1).transpose(1, 2)
        att = (split(q) @ split(k).transpose(-1, -2) / 4.0).softmax(-1) @ split(v)
        return self.out(h + att.transpose(1, 2).reshape(b, t, -1))
