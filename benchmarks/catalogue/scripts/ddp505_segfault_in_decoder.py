# expect: DDP505
# ranks: 2 4
# culprits: 1
# outcome: crash
# plain: E
"""Pictures are decoded by a native library in the workers; one file carries an offset that points nowhere."""

import ctypes
import struct

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PIXELS = 48


def encoded(index, count):
    """Header (address of the pixels, how many), pixels; the header of one file was overwritten."""
    pixels = torch.randint(0, 255, (PIXELS,), generator=torch.Generator().manual_seed(index), dtype=torch.uint8)
    buffer = ctypes.create_string_buffer(pixels.numpy().tobytes(), PIXELS)
    address = ctypes.addressof(buffer) if index != count // 2 + 1 else 8
    return struct.pack("QI", address, PIXELS), buffer


class Pictures(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        header, _alive = encoded(index, self.count)
        address, size = struct.unpack("QI", header)
        raw = ctypes.string_at(address, size)  # <- culprit
        return torch.tensor(list(raw), dtype=torch.float32) / 255, index % 5


def main():
    dist.init_process_group("gloo")
    dataset = Pictures(32 * dist.get_world_size())
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=1)  # <- culprit
    model = DDP(nn.Linear(PIXELS, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:  # <- culprit
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
