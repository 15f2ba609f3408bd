import random

import torch
import torch.distributed as dist
from torch.utils.data import Sampler


class TokenBatches(Sampler):
    """Batches by token budget; reshuffles itself at every pass, and all ranks give the same number of them."""

    def __init__(self, lengths, budget, seed):
        self.lengths, self.budget, self.seed = lengths, budget, seed
        self.passes = 0

    def _pack(self):
        rng = random.Random(f"{self.seed}:{self.passes}")
        order = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], rng.random()))
        out, current, width = [], [], 0
        for i in order:
            width = max(width, self.lengths[i])
            if current and width * (len(current) + 1) > self.budget:
                out.append(current)
                current, width = [], self.lengths[i]
            current.append(i)
        out.append(current)
        rng.shuffle(out)
        return out

    def __iter__(self):
        packed = self._pack()
        self.passes += 1
        common = torch.tensor(len(packed))
        dist.all_reduce(common, op=dist.ReduceOp.MIN)
        yield from packed[:int(common)]
