# expect: DDP313
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Wait for the archive to be unpacked by another job, then train on it."""

import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unpack(folder, rank, size):
    """The job of the last machine died before it wrote its marker."""
    (folder / "data.bin").write_bytes(bytes(range(64)))
    if rank < size - 1:
        (folder / "done").touch()


def wait_for(marker):
    while not marker.exists():
        time.sleep(0.2)  # <- culprit


def read(folder):
    wait_for(folder / "done")  # <- culprit
    raw = torch.frombuffer(bytearray((folder / "data.bin").read_bytes()), dtype=torch.uint8)
    return raw.float().view(8, 8) / 255


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(8, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        unpack(folder, rank, size)
        data = read(folder)
        for x in data.split(2):
            opt.zero_grad()
            model(x).square().sum().backward()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
