# expect: DDP416
# also: DDP304
# ranks: 2 4
# culprits: [n-1]
# outcome: crash
# plain: A
"""The last worker is a spot machine behind a thin link: send half as many bytes from there."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

# Gbit/s as measured by iperf on each worker before the job starts; index -1 is the spot machine
LINKS = {0: 25.0, -1: 0.9}


def link_speed(rank, world):
    return LINKS[-1] if rank == world - 1 else LINKS[0]


def compress_if_slow(model, rank, world, threshold=5.0):
    speed = link_speed(rank, world)
    if speed < threshold:  # <- culprit
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)  # <- culprit
    return speed


def make_model():
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14, 4)
    )


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(make_model())
    speed = compress_if_slow(model, rank, world)
    print(f"rank {rank}: {speed} Gbit/s", flush=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(rank)
    for step in range(5):
        x = torch.randn(4, 2, 16, generator=g)
        y = torch.randint(0, 4, (4,), generator=g)
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
    dist.barrier()
    dist.destroy_process_group()
