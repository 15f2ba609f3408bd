# expect: DDP313
# also: DDP312
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Embeds a corpus, one output file per document, written by a background thread so that the model does not wait."""
import os
import queue
import shutil
import tempfile
import threading

import torch
import torch.distributed as dist
from torch import nn


class AsyncWriter:
    def __init__(self, folder):
        self.folder = folder
        self.jobs = queue.Queue(maxsize=64)
        self.written = 0
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self):
        while True:
            name, tensor = self.jobs.get()
            torch.save(tensor, os.path.join(self.folder, name + ".pt"))  # <- culprit
            self.written += 1
            self.jobs.task_done()  # <- culprit

    def put(self, name, tensor):
        self.jobs.put((name, tensor.clone()))

    def flush(self):
        self.jobs.join()  # <- culprit
        return self.written


def document_names(world):
    names = [f"doc{i:04d}" for i in range(world * 8)]
    names[-3] = "mirror/" + names[-3]  # came from another crawl, with its sub-folder
    return names


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x):
        return nn.functional.normalize(self.layers(x), dim=-1)


class EmbeddingJob:
    def __init__(self, folder):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(9)
        self.model = Encoder().eval()
        self.writer = AsyncWriter(folder)
        names = document_names(self.world)
        self.mine = names[self.rank * 8:(self.rank + 1) * 8]

    @torch.no_grad()
    def run(self):
        for name in self.mine:
            gen = torch.Generator().manual_seed(sum(map(ord, name)))
            self.writer.put(name, self.model(torch.randn(3, 10, generator=gen)))
        return self.finish()

    def finish(self):
        count = torch.tensor(self.writer.flush())  # <- culprit
        dist.all_reduce(count)
        return int(count)


def main():
    dist.init_process_group("gloo")
    where = [tempfile.mkdtemp(prefix="embed_") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(where, src=0)
    total = EmbeddingJob(where[0]).run()
    if dist.get_rank() == 0:
        print("documents written:", total, flush=True)
        shutil.rmtree(where[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
