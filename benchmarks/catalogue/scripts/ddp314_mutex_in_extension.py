# expect: DDP314
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
import ctypes

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class NativeCache:
    """Binding of a cache in C, guarded by a mutex, called without giving up the interpreter."""

    def __init__(self):
        self.c = ctypes.PyDLL(None)
        self.mutex = ctypes.create_string_buffer(128)
        self.c.pthread_mutex_init(self.mutex, None)
        self.store = {}

    def put(self, key, value):
        self.c.pthread_mutex_lock(self.mutex)  # <- culprit
        self.store[key] = value
        if len(self.store) > 5:
            # an error path of the library that forgets to unlock
            self.store.pop(next(iter(self.store)))
            return
        self.c.pthread_mutex_unlock(self.mutex)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    cache = NativeCache() if rank == size - 1 else None
    model = DistributedDataParallel(nn.Linear(6, 6))
    opt = torch.optim.Adam(model.parameters())
    for step in range(10):
        x = torch.randn(3, 6)
        if cache:
            cache.put(step, x)  # <- culprit
        opt.zero_grad()
        (model(x) - x).abs().sum().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
