"""Train and log the loss; the main process writes the lines in blocks of four."""

import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Log:
    def __init__(self):
        self.lock = threading.Lock()
        self.lines = []

    def flush(self):
        with self.lock:
            print("\n".join(self.lines))
            self.lines.clear()

    def add(self, line):
        with self.lock:
            self.lines.append(line)
            if len(self.lines) == 4:
                self.flush()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    log = Log()
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            log.add(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


main()
