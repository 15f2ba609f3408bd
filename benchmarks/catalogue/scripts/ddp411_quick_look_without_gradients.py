# expect: DDP411
# also: DDP309
# ranks: 2 4
# culprits: 0
# outcome: any
# plain: S
"""Rank 0 looks at the loss of a fixed batch now and then (its buffer broadcast meets another one of the others)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(5, 16)
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.inp(x))))


@torch.no_grad()
def look(model, x, y):
    model.eval()
    value = nn.functional.mse_loss(model(x), y).item()  # <- culprit
    model.train()
    return value


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    fixed = torch.randn(16, 5)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(8):
        x = torch.randn(8, 5)
        loss = nn.functional.mse_loss(model(x), x.amax(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step in (2, 5):  # <- culprit
            print(step, look(model, fixed, fixed.amax(1, keepdim=True)))  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
