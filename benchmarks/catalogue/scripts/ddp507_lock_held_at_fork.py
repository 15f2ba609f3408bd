# expect: DDP507
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""The first rank uploads its log from a thread; thread and data set write to the log under the same lock."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log_lock = threading.Lock()
log_lines = []


class Uploader(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.busy = threading.Event()

    def run(self):
        while True:
            with log_lock:
                self.busy.set()
                time.sleep(0.5)  # the upload
                log_lines.clear()
            time.sleep(0.001)


class Digits(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with log_lock:  # <- culprit
            log_lines.append(f"read {index}")
        g = torch.Generator().manual_seed(index)
        label = index % 10
        return torch.randn(20, generator=g) + label, label


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        uploader = Uploader()
        uploader.start()  # <- culprit
        uploader.busy.wait()
    dataset = Digits(32 * dist.get_world_size())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, 8, sampler=sampler, num_workers=1, multiprocessing_context="fork")  # <- culprit
    model = DDP(nn.Linear(20, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, label in loader:  # <- culprit
        loss = nn.functional.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
