"""A DDP training script that hangs: run it with torchrun and wait 30 minutes, or with ddpnb and know why.

usage: train.py [--steps N] [--fixed]
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(args.steps):
        batch = torch.randn(32, 16, generator=torch.Generator().manual_seed(100 * step + rank))
        if rank == 1 and step == 12:
            batch[3] = float("nan")  # a bad record, on one rank only
        loss = model(batch).square().mean()

        bad = ~torch.isfinite(loss.detach())
        if args.fixed:
            flag = bad.float()
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)  # decide together ...
            if flag > 0:
                print(f"step {step}: a loss is not finite, all ranks skip the batch", flush=True)
                continue  # ... then skip together
        elif bad:
            print(f"step {step}: loss is {loss.item()}, giving up", flush=True)
            return

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 4:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)

    dist.barrier()
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
