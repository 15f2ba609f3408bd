import random
import time

import torch
import torch.distributed as dist


class FlakyStorage:
    """Object storage that now and then refuses a request."""

    def __init__(self, rank, failure_rate=0.15):
        self.rng = random.Random(77 * (rank + 1))
        self.failure_rate = failure_rate

    def read(self, key):
        if self.rng.random() < self.failure_rate:
            raise ConnectionError(f"503 slow down ({key})")
        g = torch.Generator().manual_seed(key)
        return torch.randn(24, 9, generator=g)


def with_retries(fn, attempts=8, base=0.03):
    for attempt in range(attempts):
        try:
            return fn()
        except ConnectionError:
            if attempt == attempts - 1:
                raise
            time.sleep(base * 2**attempt)


def finite_everywhere(loss):
    flag = torch.tensor(float(torch.isfinite(loss.detach()).item()))
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())
