# expect: DDP102
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def debug_requested(rank):
    """A developer left a marker in the scratch folder of one machine."""
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="scratch-"))
    if rank == 1:
        (scratch / "debug").touch()
    found = (scratch / "debug").exists()
    for item in scratch.iterdir():
        item.unlink()
    scratch.rmdir()
    return found


def maybe_init(rank):
    if debug_requested(rank):  # <- culprit
        print("debug: training alone in this process")
        return False
    dist.init_process_group("gloo")
    return True


def main():
    rank = int(os.environ.get("RANK", "0"))
    distributed = maybe_init(rank)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))
    if distributed:
        model = DistributedDataParallel(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(6):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"rank {rank} final loss {loss.item():.4f}")
    if distributed:
        dist.destroy_process_group()


main()
