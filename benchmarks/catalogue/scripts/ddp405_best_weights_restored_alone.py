# expect: DDP405
# also: DDP601
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Go back to the best weights if the validation loss gets worse; every rank validates its own shard."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BestKeeper:
    def __init__(self, module, tolerance):
        self.module, self.tolerance = module, tolerance
        self.best = float("inf")
        self.state = None

    def look(self, loss):
        if loss < self.best:
            self.best, self.state = loss, copy.deepcopy(self.module.state_dict())
        elif loss > self.best * self.tolerance:  # <- culprit
            self.module.load_state_dict(self.state)  # <- culprit


def validate(module, x, y):
    with torch.no_grad():
        return nn.functional.mse_loss(module(x), y).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    g = torch.Generator().manual_seed(rank)
    val_x = torch.randn(16, 4, generator=g)
    # the labels of the last validation shard have the opposite sign
    val_y = (val_x[:, :2] * 3) * (-1 if rank == world - 1 else 1)
    keeper = BestKeeper(model.module, tolerance=1.5)
    for _ in range(12):
        x = torch.randn(16, 4, generator=g)
        loss = nn.functional.mse_loss(model(x), x[:, :2] * 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keeper.look(validate(model.module, val_x, val_y))  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
