# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""In the first step every rank tunes its kernels, one rank after the other being done; later steps are quick."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Tuned(nn.Module):
    """Tries block sizes on the first batch and remembers the best."""

    def __init__(self, width, patience):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.patience = patience
        self.block = None

    def multiply(self, x, block):
        return torch.cat([piece @ self.weight for piece in x.split(block)])

    @torch.no_grad()
    def tune(self, x):
        times = {}
        until = time.perf_counter() + self.patience
        while time.perf_counter() < until:
            for block in (1, 2, 4, 8, 16):
                start = time.perf_counter()
                for _ in range(20):
                    self.multiply(x, block)
                times[block] = min(times.get(block, 9.0), time.perf_counter() - start)
        return min(times, key=times.get)

    def forward(self, x):
        if self.block is None:
            self.block = self.tune(x)
        return self.multiply(x, self.block)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Tuned(64, patience=2.0 + 2.0 * rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(5):
        start = time.perf_counter()
        x = torch.randn(16, 64)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: {time.perf_counter() - start:.2f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
