# expect: DDP106
# also: DDP108
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""A second group for logging, so that its messages never wait behind gradients."""

import os

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg  # noqa: F401  (backend for tests without a network)


class MetricLogger:
    def __init__(self, offline):
        backend = "fake" if offline else "gloo"  # <- culprit
        self.group = dist.new_group(backend=backend)  # <- culprit
        self.values = []

    def log(self, value):
        t = torch.tensor([float(value)])
        dist.all_reduce(t, group=self.group)
        self.values.append(t.item() / dist.get_world_size())


def offline_host(rank, size):
    """The last host of the rack has no route to the tracking server."""
    return rank == size - 1


def main():
    dist.init_process_group("gloo", init_method="env://")
    rank, size = dist.get_rank(), dist.get_world_size()
    logger = MetricLogger(offline=offline_host(rank, size))
    weights = torch.zeros(4)
    for step in range(4):
        grad = torch.randn(4)
        dist.all_reduce(grad)
        weights -= 0.1 * grad / size
        logger.log(weights.norm())
    if rank == 0:
        print(logger.values)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
