"""Solar yield regression on a cluster of mixed cards."""
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from budget import Budget, accumulate


class YieldNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(14, 64), nn.GELU(), nn.LayerNorm(64),
                                 nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def share_of(step, rank, world, share):
    g = torch.Generator().manual_seed(9000 + step)
    x = torch.randn(world * share, 14, generator=g)
    y = x[:, 0] * x[:, 1] + 0.5 * x[:, 2]
    return x[rank::world], y[rank::world]


def main(steps=36):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)                         # DDP sends rank 0's weights to the others
    model = DDP(YieldNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    budget = Budget.for_worker(rank)
    print(f"rank {rank}: {budget.passes} passes of {budget.micro}", flush=True)
    best, best_loss = None, float("inf")

    for step in range(steps):
        warm = min(1.0, (step + 1) / 6)
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * warm
        optimizer.zero_grad()
        loss = accumulate(model, budget, share_of(step, rank, world, budget.share), nn.functional.mse_loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and loss < best_loss:
            best, best_loss = copy.deepcopy(model.module.state_dict()), loss
        if step % 12 == 11:
            mean = torch.tensor(loss)
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step + 1}: mse {mean.item() / world:.4f} (best here {best_loss:.4f})", flush=True)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
