# expect: DDP603
# ranks: 2 4
# culprits: range(1, n)
# outcome: crash
# plain: E
"""The others wait until the file is there, not until it is complete."""

import io
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def slow_disk_write(path, blob, chunk=8192):
    """A network disk: the file is there at once, what is in it comes bit by bit."""
    with open(path, "wb", buffering=0) as file:
        for first in range(0, len(blob), chunk):
            file.write(blob[first : first + chunk])
            time.sleep(0.03)


def publish(model, path):
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    slow_disk_write(path, buffer.getvalue())


def wait_for(path, limit=60.0):
    until = time.monotonic() + limit
    while not os.path.exists(path):  # <- culprit
        if time.monotonic() > until:
            raise TimeoutError(path)
        time.sleep(0.05)


def share_teacher(model, path, rank):
    if rank == 0:
        publish(model, path)
    else:
        wait_for(path)  # <- culprit
        model.load_state_dict(torch.load(path))  # <- culprit
    return model.requires_grad_(False)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    teacher = share_teacher(nn.Linear(200, 200), os.path.join(folder[0], "teacher.pt"), rank)  # <- culprit
    student = DDP(nn.Linear(200, 200))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for _ in range(5):
        x = torch.randn(4, 200, generator=g)
        loss = nn.functional.mse_loss(student(x), teacher(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
