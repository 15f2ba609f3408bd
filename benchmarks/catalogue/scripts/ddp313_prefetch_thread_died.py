# expect: DDP313
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
"""Batches are prepared in a thread and handed over through a queue."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEXT = {0: "3 1 4 1 5 9 2 6", 1: "2 7 1 8 n/a 8 1 8"}


class Prefetcher:
    def __init__(self, text, copies):
        self.fields = (text.split() * copies)[: 8 * copies]
        self.ready = queue.Queue(maxsize=2)
        self.count = copies * 2
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self):
        for start in range(0, len(self.fields), 4):
            self.ready.put(torch.tensor([float(f) for f in self.fields[start : start + 4]]))

    def __iter__(self):
        for _ in range(self.count):
            yield self.ready.get()  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(4, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in Prefetcher(TEXT.get(rank, TEXT[0]), copies=3):  # <- culprit
        loss = nn.functional.l1_loss(model(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


main()
