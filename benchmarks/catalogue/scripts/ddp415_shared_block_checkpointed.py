# expect: DDP415
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# Re-enacts: issue "Expected to mark a variable ready only once" with activation checkpointing and a shared block.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class SharedBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.ff(self.norm(x))


class Universal(nn.Module):
    """One block, applied several times (weights shared over depth)."""

    def __init__(self, dim=8, depth=3):
        super().__init__()
        self.stem = nn.Linear(4, dim)
        self.block = SharedBlock(dim)
        self.depth = depth
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.stem(x)
        for _ in range(self.depth):  # <- culprit
            x = checkpoint(self.block, x, use_reentrant=True)  # <- culprit
        return self.head(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Universal())  # <- culprit
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(rank)
    for step in range(3):
        x = torch.randn(6, 4, generator=g)
        loss = (model(x).squeeze(1) - x.prod(1)).pow(2).mean()  # <- culprit
        opt.zero_grad()
        loss.backward()  # <- culprit
        opt.step()
        if rank == 0:
            print(step, loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
