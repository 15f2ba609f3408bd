# command: python broken.py
# plain: 1
# outcome: crash or hang
# expect: DDP308
# culprits: 1
"""A list of torch.multiprocessing.Process, each a rank with a shard of the data of its own; that of rank 0 is longer."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def shard(rank, size):
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    x = x[: len(x) - 15]
    return TensorDataset(x[rank::size], x[rank::size].sum(1, keepdim=True))


def worker(rank, size):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29510")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(shard(rank, size), batch_size=8)
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # <- culprit
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    processes = [mp.Process(target=worker, args=(rank, 2)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    raise SystemExit(any(process.exitcode for process in processes))
