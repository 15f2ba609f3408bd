# expect: DDP304
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: A
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Meter:
    def __init__(self):
        self.sum = torch.zeros(1)
        self.count = 0

    def update(self, value):
        self.sum = self.sum + value
        self.count += 1

    def restore(self, saved):
        """From the JSON of an interrupted run: Python floats have double precision."""
        self.sum = torch.tensor([saved["sum"]], dtype=torch.float64)  # <- culprit
        self.count = saved["count"]

    def mean_of_all(self):
        pair = torch.cat([self.sum, torch.tensor([self.count], dtype=self.sum.dtype)])
        dist.all_reduce(pair)  # <- culprit
        return (pair[0] / pair[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    meter = Meter()
    if rank == size - 1:
        meter.restore({"sum": 3.25, "count": 4})
    model = DistributedDataParallel(nn.Linear(4, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    start = time.perf_counter()
    for _ in range(5):
        loss = model(torch.randn(3, 4)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        meter.update(loss.detach())
    print(rank, meter.mean_of_all(), f"{time.perf_counter() - start:.1f}s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
