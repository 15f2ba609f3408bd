"""Shards of features that an exporter writes while the job starts."""
import os
import shutil
import threading
import time

import torch

EXPORT_SECONDS = (0.2, 5.0, 0.5, 1.5)


def _export(path, index):
    gen = torch.Generator().manual_seed(index)
    x = torch.randn(320, 16, generator=gen)
    y = x[:, :4].argmax(1)
    noisy = torch.rand(320, generator=gen) < 0.15
    y[noisy] = torch.randint(0, 4, (int(noisy.sum()),), generator=gen)
    time.sleep(EXPORT_SECONDS[index % len(EXPORT_SECONDS)])
    torch.save((x, y), path + ".part")
    os.replace(path + ".part", path)


def publish_shard(root, index):
    path = os.path.join(root, f"shard{index}.pt")
    threading.Thread(target=_export, args=(path, index), daemon=True).start()


class ShardReader:
    def __init__(self, root, index):
        self.root = root
        self.path = os.path.join(root, f"shard{index}.pt")
        self.attempts = 0

    def load(self, patience=20.0):
        pause, until = 0.05, time.monotonic() + patience
        while True:
            self.attempts += 1
            try:
                return torch.load(self.path)
            except FileNotFoundError:
                if time.monotonic() > until:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def remove_all(self):
        shutil.rmtree(self.root)
