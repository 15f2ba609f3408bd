# command: python broken.py
# plain: 1
# outcome: crash
# expect: DDP312
# culprits: 1
"""RPC beside DDP: a replay buffer on rank 0 that both trainers fill; it refuses a value of rank 1."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed import rpc
from torch.nn.parallel import DistributedDataParallel

SEEN = []


def put(rank, value):
    if len([other for other, _ in SEEN if other == rank]) >= 2 + (rank == 0) * 8:
        raise OverflowError(f"the buffer of rank {rank} is full")
    SEEN.append((rank, value))
    return len(SEEN)


def worker(rank, size):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29520")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(4):
        x = torch.randn(8, 8)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rpc.rpc_sync("worker0", put, args=(rank, loss.item()))  # <- culprit
        if rank == 0:
            print(f"step {step}: loss {loss.item():.6f}")
    dist.barrier()
    rpc.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2, join=True)
