# expect: DDP416
# ranks: 2
# culprits: [n-1]
# outcome: crash
# plain: A
# Re-enacts: report from a mixed cluster: half-precision gradient compression is switched on where the link is slow.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


def link_speed(rank, world):
    """GBit/s as read from the interface of this machine."""
    return 10 if rank == world - 1 else 100


def wrap(net, rank, world):
    ddp = DDP(net)
    if link_speed(rank, world) < 25:  # <- culprit
        ddp.register_comm_hook(state=None, hook=default_hooks.fp16_compress_hook)  # <- culprit
    return ddp


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)), rank, world)  # <- culprit
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(rank)
    for step in range(4):
        x = torch.randn(8, 32, generator=g)
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()  # <- culprit
        opt.step()
        print(f"[{rank}] step {step} {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
