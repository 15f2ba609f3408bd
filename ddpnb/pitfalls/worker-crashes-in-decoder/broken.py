"""Train on records that native code reads from one block of memory, in the workers of the loader."""

import ctypes

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SIZE = 36  # bytes of a record: nine numbers of float32


class Records(Dataset):
    def __init__(self, rank):
        values = torch.randn(48, 9, generator=torch.Generator().manual_seed(rank))
        self.block = ctypes.create_string_buffer(values.numpy().tobytes(), 48 * SIZE)
        self.offsets = [SIZE * i for i in range(48)]
        if rank == 1:
            self.offsets[21] += 1 << 60  # a bit that a disk has lost

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, index):
        offset = self.offsets[index]
        raw = ctypes.string_at(ctypes.addressof(self.block) + offset, SIZE)
        row = torch.frombuffer(bytearray(raw), dtype=torch.float32)
        return row[:8], row[8:]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    loader = DataLoader(Records(dist.get_rank()), batch_size=6, num_workers=1)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    dist.destroy_process_group()


main()
