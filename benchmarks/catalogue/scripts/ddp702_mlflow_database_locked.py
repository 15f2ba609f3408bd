# expect: DDP702
# also: DDP313
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""Runs are recorded in one SQLite file; a run holds its transaction open until it has ended."""

import os
import sqlite3
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MlflowClient:
    def __init__(self, uri):
        self.database = sqlite3.connect(uri, timeout=3600, isolation_level=None)

    def start_run(self, name):
        self.database.execute("BEGIN EXCLUSIVE")  # <- culprit
        self.database.execute("CREATE TABLE IF NOT EXISTS metrics (run TEXT, step INTEGER, loss REAL)")
        self.run = name

    def log_metric(self, step, loss):
        self.database.execute("INSERT INTO metrics VALUES (?, ?, ?)", (self.run, step, loss))

    def end_run(self):
        self.database.execute("COMMIT")
        self.database.close()


class Callback:
    """Tells the tracker; the trainer's hooks call it on whatever rank it runs."""

    def __init__(self, uri):
        self.client = MlflowClient(uri)

    def on_train_start(self):
        self.client.start_run(f"rank-{dist.get_rank()}")  # <- culprit

    def on_step(self, step, loss):
        self.client.log_metric(step, loss)

    def on_train_end(self):
        self.client.end_run()


def train(callback, steps=6):
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    if rank > 0:
        ready = torch.zeros(1)
        dist.broadcast(ready, src=0)
    callback.on_train_start()  # <- culprit
    if rank == 0:
        dist.broadcast(torch.ones(1), src=0)
    for step in range(steps):
        x = torch.randn(8, 3, generator=g)
        loss = nn.functional.mse_loss(model(x), x.norm(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        callback.on_step(step, loss.item())
    callback.on_train_end()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    path = [os.path.join(tempfile.mkdtemp(), "mlruns.db")]
    dist.broadcast_object_list(path, src=0)
    train(Callback(path[0]))  # <- culprit
    dist.destroy_process_group()
