# expect: DDP313
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
import threading

import torch
import torch.distributed as dist


class History:
    """Kept by the training loop, read by a thread that draws it."""

    def __init__(self, limit):
        self.lock = threading.Lock()
        self.values = []
        self.limit = limit

    def add(self, value):
        with self.lock:
            self.values.append(value)
            if len(self.values) > self.limit:
                self.shrink()  # <- culprit

    def shrink(self):
        with self.lock:  # <- culprit
            self.values = self.values[::2]


def langevin(x, steps, history):
    for _ in range(steps):
        gradient = x - 1.0
        dist.all_reduce(gradient)
        x = x - 0.05 * gradient / dist.get_world_size() + 0.1 * torch.randn_like(x)
        history.add(x.mean().item())
    return x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    # the last process keeps little: it has the smallest memory
    history = History(limit=4 if rank == size - 1 else 1000)
    print(rank, langevin(torch.zeros(3), 12, history))
    dist.destroy_process_group()
