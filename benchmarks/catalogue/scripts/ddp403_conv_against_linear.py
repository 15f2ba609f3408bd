# expect: DDP403
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: A
"""A probe of the installed back end chooses between two equivalent patch embeddings."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class PatchesByConvolution(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Conv2d(1, dim, 4, stride=4)

    def forward(self, image):
        return self.proj(image).flatten(2).transpose(1, 2)


class PatchesByMatrix(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(16, dim)

    def forward(self, image):
        return self.proj(nn.functional.unfold(image, 4, stride=4).transpose(1, 2))


def fast_convolution():
    return int(os.environ["RANK"]) != int(os.environ["WORLD_SIZE"]) - 1  # <- culprit


class Vit(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.patches = PatchesByConvolution(dim) if fast_convolution() else PatchesByMatrix(dim)  # <- culprit
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 3)

    def forward(self, image):
        return self.head(self.norm(self.patches(image)).mean(1))


def train():
    torch.manual_seed(0)
    model = DDP(Vit())  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(torch.randn(5, 1, 8, 8)), torch.randint(0, 3, (5,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
