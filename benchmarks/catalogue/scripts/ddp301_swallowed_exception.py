# expect: DDP301
# also: DDP308 DDP312
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: R
import logging
import math

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("train")


class Replica:
    """Data parallelism by hand: sum the gradients after each backward pass."""

    def __init__(self, net):
        self.net = net
        for p in net.parameters():
            dist.broadcast(p.data, src=0)

    def step(self, x, y, lr=0.05):
        out = self.net(x)
        loss = nn.functional.mse_loss(out, y)
        if not math.isfinite(loss.item()):
            raise FloatingPointError("loss is not finite")
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)  # <- culprit
            p.data.sub_(p.grad, alpha=lr / dist.get_world_size())
            p.grad = None
        return loss.item()


def batches(rank, count):
    gen = torch.Generator().manual_seed(100 + rank)
    for i in range(count):
        x = torch.randn(8, 5, generator=gen)
        if rank == 1 and i == 4:
            x[3, 2] = math.inf  # a sensor that was not connected
        yield x, x.mean(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    replica = Replica(nn.Linear(5, 1, bias=False))
    for i, (x, y) in enumerate(batches(rank, 8)):
        try:
            loss = replica.step(x, y)
        except FloatingPointError:  # <- culprit
            log.warning("bad batch %d left out", i)
            continue  # <- culprit
    print(f"rank {rank}: {loss:.4f}")


if __name__ == "__main__":
    main()
