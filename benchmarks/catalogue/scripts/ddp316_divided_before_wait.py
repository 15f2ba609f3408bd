# expect: DDP316
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""The loss is averaged in the background while the optimizer works."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def start_mean(loss):
    value = loss.detach().clone()
    work = dist.all_reduce(value, async_op=True)
    value /= dist.get_world_size()  # <- culprit
    return value, work


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    history = []
    for step in range(10):
        x = torch.randn(16, 6)
        loss = nn.functional.mse_loss(model(x), x.pow(2).sum(1, keepdim=True))
        opt.zero_grad()
        loss.backward()
        value, work = start_mean(loss)
        opt.step()
        work.wait()
        history.append(value.item())
    if rank == 0:
        print([round(v, 3) for v in history])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
