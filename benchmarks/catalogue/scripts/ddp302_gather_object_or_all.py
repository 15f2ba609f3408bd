# expect: DDP302
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Collect predictions of a test set from all processes."""

import torch
import torch.distributed as dist
from torch import nn


class Predictor:
    def __init__(self, keep_copy):
        torch.manual_seed(0)
        self.net = nn.Linear(6, 3)
        self.keep_copy = keep_copy

    @torch.inference_mode()
    def predict(self, rows):
        return {i: int(self.net(x).argmax()) for i, x in rows}

    def collect(self, predictions):
        size = dist.get_world_size()
        if self.keep_copy:
            parts = [None] * size
            dist.all_gather_object(parts, predictions)  # <- culprit
        else:
            parts = [None] * size if dist.get_rank() == 0 else None
            dist.gather_object(predictions, parts, dst=0)
        return {k: v for part in parts or [] for k, v in part.items()}


def rows(rank, size, count=24):
    gen = torch.Generator().manual_seed(9)
    x = torch.randn(count, 6, generator=gen)
    return [(i, x[i]) for i in range(rank, count, size)]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    predictor = Predictor(keep_copy=rank == size - 1)
    merged = predictor.collect(predictor.predict(rows(rank, size)))
    print(rank, len(merged))
    dist.barrier()
    dist.destroy_process_group()
