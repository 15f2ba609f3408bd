"""Train on records from many small shards; the machine allows a process 1024 open files."""

import os
import resource
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self, folder):
        self.paths = [os.path.join(folder, f"{number:04d}.bin") for number in range(1200)]
        for path in self.paths:
            torch.randn(2, 9).numpy().tofile(path)
        self.files = None

    def __len__(self):
        return 2 * len(self.paths)

    def __getitem__(self, index):
        if self.files is None:  # once in each worker
            self.files = [open(path, "rb") for path in self.paths]
        raw = os.pread(self.files[index // 2].fileno(), 36, index % 2 * 36)
        record = torch.frombuffer(bytearray(raw), dtype=torch.float32)
        return record[:8], record[8:]


def machine(worker):
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))  # as ulimit -n 1024


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with tempfile.TemporaryDirectory() as folder:
        for x, y in DataLoader(Shards(folder), batch_size=200, shuffle=True, num_workers=1, worker_init_fn=machine):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    dist.destroy_process_group()


main()
