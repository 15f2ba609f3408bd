# expect: DDP202
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# Re-enacts: issue with low-memory model creation: a table made under the meta device is no buffer and never gets memory.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.inp = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.positions = torch.linspace(0, 1, length).unsqueeze(1).repeat(1, dim)  # <- culprit

    def forward(self, x):
        h = self.inp(x) + self.positions  # <- culprit
        return self.out(torch.relu(h))


def create_empty(dim, length):
    with torch.device("meta"):  # <- culprit
        model = Block(dim, length)  # <- culprit
    model.to_empty(device="cpu")
    torch.manual_seed(0)
    for p in model.parameters():
        nn.init.normal_(p, std=0.02)
    return model


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(create_empty(8, 12))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    for step in range(4):
        x = torch.randn(2, 12, 8, generator=gen)
        loss = model(x).pow(2).mean()  # <- culprit
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
