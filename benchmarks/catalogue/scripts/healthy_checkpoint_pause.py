# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""The first rank writes a well compressed checkpoint while the others stand at the barrier."""

import io
import lzma
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def compress(blob, seconds):
    """Try presets until the time is used up; keep the smallest result."""
    best, until = blob, time.monotonic() + seconds
    preset = 0
    while time.monotonic() < until:
        attempt = lzma.compress(blob, preset=preset % 10)
        best = min(best, attempt, key=len)
        preset += 1
    return best


class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        self.model = DDP(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.g = torch.Generator().manual_seed(self.rank)

    def step(self):
        x = torch.randn(8, 64, generator=self.g)
        loss = nn.functional.mse_loss(self.model(x), x)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def save(self, path):
        if self.rank == 0:
            buffer = io.BytesIO()
            torch.save(self.model.module.state_dict(), buffer)
            with open(path, "wb") as file:
                file.write(compress(buffer.getvalue(), seconds=6))
                file.flush()
                os.fsync(file.fileno())
            print("checkpoint of", os.path.getsize(path), "bytes", flush=True)
        dist.barrier()


dist.init_process_group("gloo")
trainer = Trainer()
for _ in range(3):
    trainer.step()
with tempfile.TemporaryDirectory() as folder:
    trainer.save(os.path.join(folder, "model.pt.xz"))
for _ in range(3):
    trainer.step()
dist.destroy_process_group()
