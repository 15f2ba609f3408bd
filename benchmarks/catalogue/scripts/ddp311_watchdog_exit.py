# expect: DDP311
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: R
"""A process that finds its machine too hot leaves at once."""

import os

import torch
import torch.distributed as dist


class Thermometer:
    def __init__(self, rank, size):
        self.values = iter([61, 68, 75, 83, 91, 94]) if rank == size - 1 else iter([60] * 100)

    def check(self):
        if next(self.values) > 90:
            print("too hot, leaving", flush=True)
            os._exit(75)  # <- culprit


def power_step(matrix, vector):
    part = matrix @ vector
    dist.all_reduce(part)
    return part / part.norm()


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
thermometer = Thermometer(rank, size)
torch.manual_seed(rank)
matrix = torch.rand(6, 6)
vector = torch.ones(6)
for _ in range(20):
    thermometer.check()
    vector = power_step(matrix, vector)
print(vector)
dist.destroy_process_group()
