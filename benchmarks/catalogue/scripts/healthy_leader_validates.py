# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""The first process keeps an average of the weights, validates with it and writes the checkpoint."""
import copy
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Averaged:
    def __init__(self, core, decay=0.9):
        self.core = copy.deepcopy(core).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, core):
        for a, p in zip(self.core.parameters(), core.parameters()):
            a.lerp_(p, 1 - self.decay)
        for a, b in zip(self.core.buffers(), core.buffers()):
            a.copy_(b)


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))


def shard(rank, world, total=96):
    g = torch.Generator().manual_seed(2)
    x = torch.randn(total, 6, generator=g)
    y = x[:, :1] - 0.5 * x[:, 1:2]
    return x[rank::world], y[rank::world]


@torch.no_grad()
def validate(core, budget=2.2):
    """Bootstrap of the error: as many draws as fit in the time."""
    g = torch.Generator().manual_seed(99)
    x = torch.randn(400, 6, generator=g)
    err = (core(x) - (x[:, :1] - 0.5 * x[:, 1:2])).square()
    until, draws = time.monotonic() + budget, []
    while time.monotonic() < until:
        draws.append(err[torch.randint(0, 400, (400,), generator=g)].mean())
    return torch.stack(draws).mean().item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(build())
    average = Averaged(model.module) if rank == 0 else None
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = shard(rank, world)
    folder = tempfile.mkdtemp() if rank == 0 else None
    for epoch in range(2):
        model.train()
        for xb, yb in zip(x.split(8), y.split(8)):
            opt.zero_grad()
            nn.functional.mse_loss(model(xb), yb).backward()
            opt.step()
            if average is not None:
                average.update(model.module)
        if rank == 0:
            model.module.eval()
            plain = validate(model.module, 0.3)
            smooth = validate(average.core)
            path = os.path.join(folder, f"epoch{epoch}.pt")
            torch.save({"model": model.module.state_dict(), "ema": average.core.state_dict()}, path)
            print(f"epoch {epoch}: {plain:.4f} averaged {smooth:.4f}", flush=True)
        dist.barrier()
    total = torch.stack([p.detach().double().sum() for p in model.parameters()])
    low, high = total.clone(), total.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    assert torch.equal(low, high)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
