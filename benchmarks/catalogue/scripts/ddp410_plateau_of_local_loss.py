# expect: DDP410
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""ReduceLROnPlateau, fed with the validation loss of the rank's own shard."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def validation_set(rank, world):
    g = torch.Generator().manual_seed(99)
    x = torch.randn(32, 3, generator=g)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
    if rank == world - 1:
        y = -y  # another sensor, mounted the other way round
    return x, y


def train(model, optimizer, g):
    for _ in range(4):
        x = torch.randn(16, 3, generator=g)
        y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def validate(model, x, y):
    return nn.functional.mse_loss(model.module(x), y).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)  # <- culprit
    val_x, val_y = validation_set(rank, world)
    g = torch.Generator().manual_seed(rank)
    for _ in range(5):
        train(model, optimizer, g)
        plateau.step(validate(model, val_x, val_y))  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
