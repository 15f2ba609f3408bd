# expect: DDP702
# also: DDP313
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""Every rank downloads the weights; the cache lets one process in, and the first keeps it until training is over."""

import contextlib
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@contextlib.contextmanager
def cache_lock(folder):
    """A lock file in the hub's cache; who finds one comes back a little later."""
    path = Path(folder) / "models--tiny--net.lock"
    while True:
        try:
            path.touch(exist_ok=False)
            break
        except FileExistsError:
            time.sleep(0.2)  # <- culprit
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


class Hub:
    def __init__(self, folder):
        self.folder = Path(folder)

    def snapshot_download(self, name):
        target = self.folder / f"{name}.pt"
        if not target.exists():
            torch.manual_seed(1)
            torch.save(nn.Linear(9, 3).state_dict(), target)
        return target


def fit(model, rank):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for _ in range(6):
        x = torch.randn(8, 9, generator=g)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with contextlib.ExitStack() as training:
        cache = [None]
        if rank == 0:
            cache = [tempfile.mkdtemp(prefix="hub-")]
            training.enter_context(cache_lock(cache[0]))
        dist.broadcast_object_list(cache, src=0)
        if rank != 0:
            training.enter_context(cache_lock(cache[0]))  # <- culprit
        model = nn.Linear(9, 3)
        model.load_state_dict(torch.load(Hub(cache[0]).snapshot_download("tiny")))
        fit(model, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
