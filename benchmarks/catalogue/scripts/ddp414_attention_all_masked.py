# expect: DDP414
# ranks: 2 4
# culprits: 0
# outcome: any
# plain: S
"""Hand-made attention with padding; an empty sequence masks every key, and the softmax divides nothing by nothing."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Attention(nn.Module):
    def __init__(self, dim: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, classes)
        self.dim = dim

    def forward(self, x: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / math.sqrt(self.dim)
        padding = torch.arange(x.shape[1]) >= length[:, None]
        scores = scores.masked_fill(padding[:, None, :], float("-inf"))  # <- culprit
        return self.out((scores.softmax(-1) @ v).mean(1))  # <- culprit


def make_batch(g: torch.Generator, empty: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    length = torch.randint(1, 6, (4,), generator=g)
    if empty:
        length[1] = 0
    return torch.randn(4, 5, 8, generator=g), length, torch.randint(0, 3, (4,), generator=g)


def train(steps: int = 9) -> None:
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Attention())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(100 + rank)
    for step in range(steps):
        x, length, y = make_batch(g, empty=rank == 0 and step == 5)
        loss = nn.functional.cross_entropy(model(x, length), y)  # <- culprit
        optimizer.zero_grad()
        loss.backward()  # <- culprit
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
