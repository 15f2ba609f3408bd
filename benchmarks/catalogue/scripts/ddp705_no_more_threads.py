# expect: DDP705
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
"""The first rank starts a thread for every open download; the stacks of them do not fit into what it may map."""

import resource
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MIB = 1 << 20


def address_space_limit(extra):
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + extra, hard))


class Downloads:
    def __init__(self):
        self.finished = threading.Event()
        self.threads = []

    def start(self, count):
        threading.stack_size(512 * MIB)
        for number in range(count):
            thread = threading.Thread(target=self.finished.wait, name=f"download-{number}", daemon=True)
            thread.start()  # <- culprit
            self.threads.append(thread)
        threading.stack_size(0)


def train(model, rank, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(8, 6, generator=g)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(6, 2))
    train(model, rank)
    if rank == 0:
        address_space_limit(extra=3000 * MIB)
        Downloads().start(16)  # <- culprit
    train(model, rank)
    dist.destroy_process_group()
