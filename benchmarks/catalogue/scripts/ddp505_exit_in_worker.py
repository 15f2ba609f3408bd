# expect: DDP505
# ranks: 2 4
# culprits: 1
# outcome: crash
# plain: E
"""The reader was a command-line tool once: on a bad checksum it prints and leaves the process."""

import os
import sys
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def make_records(rank, count=36):
    g = torch.Generator().manual_seed(rank)
    for number in range(count):
        payload = torch.randn(12, generator=g).numpy().tobytes()
        checksum = zlib.crc32(payload)
        if rank == 1 and number == 17:
            checksum ^= 0x10
        yield payload, checksum


def read_record(payload, checksum):
    if zlib.crc32(payload) != checksum:
        print("readrec: bad checksum, giving up", file=sys.stderr, flush=True)
        os._exit(2)  # <- culprit
    return torch.frombuffer(bytearray(payload), dtype=torch.float32)


class Records(IterableDataset):
    def __init__(self, rank):
        self.rank = rank

    def __iter__(self):
        for payload, checksum in make_records(self.rank):
            row = read_record(payload, checksum)  # <- culprit
            yield row[:-1], row[-1:]


class Trainer:
    def __init__(self):
        self.loader = DataLoader(Records(dist.get_rank()), batch_size=6, num_workers=1)  # <- culprit
        self.model = DDP(nn.Linear(11, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def epoch(self):
        for x, y in self.loader:  # <- culprit
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print("loss", Trainer().epoch())
    dist.destroy_process_group()
