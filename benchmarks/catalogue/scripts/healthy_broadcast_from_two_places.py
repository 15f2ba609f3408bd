# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""The learning rate is decided on one rank; it calls broadcast in one function, the others in another."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Scheduler:
    """Halves the rate when the loss did not go down."""

    def __init__(self, rate):
        self.rate, self.last = rate, float("inf")

    def decide(self, loss):
        if loss > self.last:
            self.rate /= 2
        self.last = loss
        decision = torch.tensor([self.rate])
        dist.broadcast(decision, src=0)
        return self.rate


def follow():
    decision = torch.empty(1)
    dist.broadcast(decision, 0)
    return decision.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    scheduler = Scheduler(0.5) if rank == 0 else None
    model = DDP(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    g = torch.Generator().manual_seed(rank)
    for _ in range(10):
        x = torch.randn(16, 6, generator=g)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            rate = scheduler.decide(loss.item())
        else:
            rate = follow()
        for group in optimizer.param_groups:
            group["lr"] = rate
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
