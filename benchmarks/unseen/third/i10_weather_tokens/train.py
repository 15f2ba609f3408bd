import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh

from net import sharded
from store import Store

BATCH, CELLS, STEPS, RESUME_AT = 8, 16, 12, 6


def weather(step, rank):
    g = torch.Generator().manual_seed(10_000 * rank + step)
    now = torch.randn(BATCH, CELLS, 3, generator=g)
    return now, 0.7 * now + 0.3 * now.roll(1, dims=1)


def fit(net, opt, store, start, stop, rank):
    for step in range(start + 1, stop + 1):
        now, later = weather(step, rank)
        loss = nn.functional.mse_loss(net(now), later)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0).full_tensor()
        opt.step()
        opt.zero_grad()
        if step % 6 == 0:
            mean = loss.detach().clone()
            dist.reduce(mean, dst=0)
            if rank == 0:
                print(f"step {step} mse {mean / dist.get_world_size():.4f} grad {norm:.3f}", flush=True)
            store.save(net, opt, step)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    where = [tempfile.mkdtemp(prefix="forecast_") if rank == 0 else None]
    dist.broadcast_object_list(where, src=0)
    store = Store(where[0])

    net = sharded(mesh, seed=3)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    fit(net, opt, store, 0, RESUME_AT, rank)

    # second leg of the job: a new model that picks up from the disk
    net = sharded(mesh, seed=99 + rank)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    start = store.restore(net, opt, store.latest())
    fit(net, opt, store, start, STEPS, rank)
    tensors = store.export(net)
    if tensors:
        print(f"rank {rank} exported {tensors} tensors", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
