# expect: DDP106
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--backend", default="mpi")  # the cluster's build of torch has it
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--width", type=int, default=16)
    return p.parse_args()


def main():
    args = parse()
    dist.init_process_group(args.backend)  # <- culprit
    model = DDP(nn.Linear(args.width, args.width))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.steps):
        opt.zero_grad()
        model(torch.randn(4, args.width)).pow(2).mean().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
