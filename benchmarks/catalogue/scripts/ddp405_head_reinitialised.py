# expect: DDP405
# ranks: 2 4
# culprits: 1
# outcome: divergence
# plain: S
"""Transfer learning: the head starts from new values if the shard has an unknown class."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def shard(rank):
    g = torch.Generator().manual_seed(rank)
    y = torch.randint(0, 3, (64,), generator=g)
    if rank == 1:
        y[::7] = 3
    return torch.randn(64, 8, generator=g), y


def prepare_head(model, labels, known=3):
    if labels.max() >= known:  # <- culprit
        model.module.head.reset_parameters()  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x, y = shard(rank)
    torch.manual_seed(0)
    model = DDP(Net())
    prepare_head(model, y)  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for i in range(0, 64, 8):
        loss = nn.functional.cross_entropy(model(x[i : i + 8]), y[i : i + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
