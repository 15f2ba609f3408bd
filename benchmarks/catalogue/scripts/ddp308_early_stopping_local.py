# expect: DDP308
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: R
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class EarlyStopping:
    def __init__(self, patience):
        self.patience = patience
        self.best = float("inf")
        self.bad = 0

    def __call__(self, value):
        if value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def validation_loss(epoch, rank, size):
    """The last process validates on the hard samples: it stops improving early."""
    return 1 / (1 + epoch) if rank < size - 1 else 1 / (1 + min(epoch, 1))


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(8, 8))
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    stop = EarlyStopping(patience=2)
    for epoch in range(8):
        for _ in range(2):
            x = torch.randn(8, 8)
            opt.zero_grad()
            nn.functional.mse_loss(model(x), x.flip(1)).backward()
            opt.step()
        if stop(validation_loss(epoch, rank, size)):  # <- culprit
            print(f"rank {rank}: stopped after epoch {epoch}")
            break  # <- culprit


main()
