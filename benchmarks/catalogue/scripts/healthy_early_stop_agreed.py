# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Validation on the first rank with the bare module while the others wait; all stop together when it says so."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def validate(module):
    g = torch.Generator().manual_seed(999)
    x = torch.randn(64, 7, generator=g)
    module.eval()
    loss = nn.functional.mse_loss(module(x), x.mean(1, keepdim=True)).item()
    module.train()
    return loss


class EarlyStopping:
    def __init__(self, tolerance):
        self.best, self.bad, self.tolerance = float("inf"), 0, tolerance

    def __call__(self, loss):
        self.bad = 0 if loss < 0.99 * self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= self.tolerance


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stopping = EarlyStopping(tolerance=2)
    model = DDP(nn.Sequential(nn.Linear(7, 14), nn.Dropout(0.1), nn.ReLU(), nn.Linear(14, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    g = torch.Generator().manual_seed(rank)
    stop = torch.zeros(1)
    for epoch in range(30):
        for _ in range(4):
            x = torch.randn(16, 7, generator=g)
            loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            stop[0] = float(stopping(validate(model.module)))
        dist.broadcast(stop, src=0)
        if stop.item():
            break
    print(f"rank {rank}: stopped after epoch {epoch}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
