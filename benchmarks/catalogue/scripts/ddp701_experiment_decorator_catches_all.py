# expect: DDP701
# ranks: 2
# culprits: range(n)
# outcome: any
# plain: S
# Re-enacts: issue "train.py swallows exceptions and exits with code 0" (a catch-all decorator round main).
import functools
import json
import os
import sys
import traceback
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def catch(func):
    @functools.wraps(func)
    def wrapper(*a, **kw):
        try:
            return func(*a, **kw)  # <- culprit
        except Exception:  # <- culprit
            print("An error has been caught in main()", file=sys.stderr)
            traceback.print_exc()  # <- culprit
    return wrapper


def read_schedule(path="configs/schedule.json"):
    with open(path) as f:  # <- culprit
        return json.load(f)


def warmup(model, opt, rank, steps=3):
    g = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(4, 6, generator=g)
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()


@catch  # <- culprit
def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(6, 6))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    warmup(model, opt, rank)
    dist.barrier()
    schedule = read_schedule()  # <- culprit
    for lr in schedule["lr"]:
        for group in opt.param_groups:
            group["lr"] = lr
        warmup(model, opt, rank)


if __name__ == "__main__":
    main()  # <- culprit
    if dist.is_initialized():
        dist.destroy_process_group()
    if os.environ.get("RANK") == "0":
        print("Training of experiment is done.")
