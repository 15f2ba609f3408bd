# expect: DDP317
# ranks: 2 4
# culprits: range(n)
# outcome: ok
# plain: S
"""Time-outs were raised until nobody saw any more of them."""

import dataclasses
import datetime as dt

import torch
import torch.distributed as dist


@dataclasses.dataclass(frozen=True)
class ClusterConfig:
    backend: str = "gloo"
    timeout_hours: float = 336.0
    rounds: int = 5

    def start(self):
        limit = dt.timedelta(hours=self.timeout_hours)
        dist.init_process_group(self.backend, timeout=limit)  # <- culprit


class KMeans:
    def __init__(self, k, width):
        torch.manual_seed(0)
        self.centres = torch.randn(k, width)

    def round(self, points):
        nearest = torch.cdist(points, self.centres).argmin(1)
        sums = torch.zeros_like(self.centres).index_add_(0, nearest, points)
        counts = torch.bincount(nearest, minlength=len(self.centres)).float()
        dist.all_reduce(sums)
        dist.all_reduce(counts)
        used = counts > 0
        self.centres[used] = sums[used] / counts[used, None]
        return used.sum().item()


if __name__ == "__main__":
    config = ClusterConfig()
    config.start()
    model = KMeans(4, 3)
    gen = torch.Generator().manual_seed(dist.get_rank())
    points = torch.randn(200, 3, generator=gen)
    for _ in range(config.rounds):
        used = model.round(points)
    print(dist.get_rank(), used, model.centres[0].tolist())
    dist.destroy_process_group()
