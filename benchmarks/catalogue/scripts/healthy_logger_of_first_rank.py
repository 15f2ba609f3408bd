# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""The tracker runs on the first rank, the download is done there first; the others come when it is finished."""

import contextlib
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@contextlib.contextmanager
def main_process_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


class WandbRun:
    """A tracker that takes a moment to start."""

    def __init__(self, folder):
        time.sleep(0.5)
        self.file = open(Path(folder) / "run.log", "a")

    def log(self, **values):
        self.file.write(f"{values}\n")

    def finish(self):
        self.file.close()


def download(folder):
    path = Path(folder) / "weights.pt"
    if not path.exists():
        torch.save(nn.Linear(5, 5).state_dict(), path)
    return torch.load(path)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    run = WandbRun(folder[0]) if rank == 0 else None
    model = nn.Linear(5, 5)
    with main_process_first():
        model.load_state_dict(download(folder[0]))
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for step in range(8):
        x = torch.randn(8, 5, generator=g)
        loss = nn.functional.mse_loss(model(x), x.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if run:
            run.log(step=step, loss=loss.item())
    if run:
        run.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
