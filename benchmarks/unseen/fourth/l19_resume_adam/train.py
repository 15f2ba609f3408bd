"""Trains in two sittings; the second one goes on from the checkpoint of the first."""
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from checkpoint import Checkpointer

DIM, SITTING = 10, 8


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(DIM, 24), nn.SiLU(), nn.Linear(24, 1))
    return model, torch.optim.Adam(model.parameters(), lr=1e-2)


def data(step, rank):
    gen = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(16, DIM, generator=gen)
    return x, x[:, :2].prod(1, keepdim=True)


def sitting(keeper, rank):
    model, opt = build()
    keeper.restore(model, opt)
    start = torch.tensor([opt_steps(opt)])
    dist.broadcast(start, src=0)
    net = DDP(model)
    for step in range(start.item(), start.item() + SITTING):
        x, y = data(step, rank)
        loss = (net(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    keeper.save(step + 1, model, opt)
    if rank == 0:
        print(f"steps {start.item()}..{step} loss {loss.item():.4f}", flush=True)


def opt_steps(opt):
    states = list(opt.state.values())
    return int(states[0]["step"]) if states else 0


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    scratch = tempfile.mkdtemp(prefix=f"scratch{rank}_")
    keeper = Checkpointer(scratch, is_main=rank == 0)
    sitting(keeper, rank)
    dist.barrier()
    sitting(keeper, rank)
    dist.barrier()
    shutil.rmtree(scratch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
