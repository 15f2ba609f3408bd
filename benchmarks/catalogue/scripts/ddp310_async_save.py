# expect: DDP310
# also: DDP302
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: T
"""Saving goes on in a thread; the save agrees on its number with the other processes."""

import threading
import time

import torch
import torch.distributed as dist


class AsyncSaver:
    """On the last process the work begins in a thread, as its disk is slow."""

    def __init__(self, slow_disk):
        self.slow_disk = slow_disk
        self.threads = []

    def save(self, state):
        if self.slow_disk:
            thread = threading.Thread(target=self._save, args=(state, 0.3))
            thread.start()  # <- culprit
            self.threads.append(thread)
        else:
            self._save(state, 0.0)

    def _save(self, state, delay):
        time.sleep(delay)
        number = torch.tensor([len(state)])
        dist.broadcast(number, src=0)  # <- culprit

    def close(self):
        for thread in self.threads:
            thread.join()


def smooth(x):
    total = x.clone()
    dist.all_reduce(total)  # <- culprit
    return 0.5 * x + 0.5 * total / dist.get_world_size()


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
saver = AsyncSaver(slow_disk=rank == size - 1)
x = torch.randn(1)
for step in range(6):
    x = smooth(x)
    if step % 3 == 2:
        saver.save({"x": x, "step": step})
saver.close()
print(rank, x)
dist.destroy_process_group()
