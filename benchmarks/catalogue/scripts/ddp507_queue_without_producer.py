# expect: DDP507
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""A producer thread fills a queue that the loader's worker empties; it is started by the first rank alone."""

import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

ITEMS = 40


def produce(queue, rank):
    g = torch.Generator().manual_seed(rank)
    for _ in range(ITEMS):
        queue.put(torch.rand(5, generator=g).tolist())


class FromQueue(IterableDataset):
    def __init__(self, queue):
        self.queue = queue

    def __iter__(self):
        for _ in range(ITEMS):
            values = torch.tensor(self.queue.get())  # <- culprit
            yield values[:4], values[4:]


def main(rank):
    queue = mp.get_context("fork").Queue(maxsize=8)
    loader = DataLoader(FromQueue(queue), batch_size=8, num_workers=1)  # <- culprit
    batches = iter(loader)
    if rank == 0:  # <- culprit
        threading.Thread(target=produce, args=(queue, rank), daemon=True).start()  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for x, y in batches:  # <- culprit
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(dist.get_rank())
    dist.destroy_process_group()
