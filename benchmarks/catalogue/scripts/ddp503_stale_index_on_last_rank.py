# expect: DDP503
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""The index of usable rows is cached on every node's own disk; what is there is trusted."""

import json
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

ROWS = 128


def table():
    g = torch.Generator().manual_seed(21)
    x = torch.randn(ROWS, 8, generator=g)
    return TensorDataset(x, x.abs().sum(1, keepdim=True))


def node_local_disk(rank, world):
    """A scratch disk per node; that of the last one still holds the index of last week's, stricter filter."""
    scratch = Path(tempfile.mkdtemp(prefix=f"node{rank}-"))
    if rank == world - 1:
        (scratch / "index.json").write_text(json.dumps([i for i in range(ROWS) if i % 16 != 3]))
    return scratch


def usable_rows(scratch):
    cache = scratch / "index.json"
    if cache.exists():  # <- culprit
        return json.loads(cache.read_text())  # <- culprit
    index = list(range(ROWS))
    cache.write_text(json.dumps(index))
    return index


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    scratch = node_local_disk(rank, world)
    dataset = Subset(table(), usable_rows(scratch))  # <- culprit
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:  # <- culprit
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
    print(f"rank {rank}: loss {loss.item():.3f}", flush=True)
    shutil.rmtree(scratch)
    dist.destroy_process_group()


main()
