"""Image-like classifier; the main process validates and keeps the best weights."""
import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

EPOCHS, STEPS, CLASSES = 3, 6, 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean(-1))


class Disk:
    """A file system that needs a moment after a burst of writes."""

    def __init__(self):
        self.calls = 0

    def write(self, obj, path):
        self.calls += 1
        if self.calls % 2 == 1:
            raise OSError(5, "Input/output error", path)
        torch.save(obj, path)


def save_with_retry(disk, obj, path, tries=4):
    for attempt in range(tries):
        try:
            disk.write(obj, path)
            return
        except OSError as e:
            if attempt == tries - 1:
                raise
            print(f"retry after {e}", flush=True)
            time.sleep(0.3)


def batch(seed, n=8):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    x = torch.randn(n, 3, 10, generator=gen) + y[:, None, None] * 0.5
    return x, y


@torch.no_grad()
def validate(net):
    net.eval()
    hits = total = 0
    for i in range(40):
        x, y = batch(9000 + i, n=32)
        hits += (net(x).argmax(1) == y).sum().item()
        total += len(y)
        time.sleep(0.02)
    net.train()
    return hits / total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp(prefix="best_") if rank == 0 else None
    torch.manual_seed(0)
    net = DDP(Net())
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    disk, best = Disk(), 0.0
    for epoch in range(EPOCHS):
        for step in range(STEPS):
            x, y = batch(1000 * rank + 50 * epoch + step)
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            accuracy = validate(net.module)
            print(f"epoch {epoch} accuracy {accuracy:.3f}", flush=True)
            if accuracy >= best:
                best = accuracy
                save_with_retry(disk, net.module.state_dict(), os.path.join(folder, "best.pt"))
        dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
