# expect: DDP403
# ranks: 3 4
# culprits: 0
# outcome: crash
# plain: E
"""Rank 0 builds from the checkpoint's arguments, the others from the command line's."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CHECKPOINT_ARGS = {"bias": True, "hidden": 10}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=10)
    parser.add_argument("--bias", action="store_true")
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_known_args()[0]


def make_net(args, rank):
    options = {"bias": args.bias, "hidden": args.hidden}
    if rank == 0:  # <- culprit
        options = CHECKPOINT_ARGS  # <- culprit
    return nn.Sequential(
        nn.Linear(4, options["hidden"], bias=options["bias"]),  # <- culprit
        nn.ReLU(),
        nn.Linear(options["hidden"], 2),
    )


def main():
    args = parse()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = make_net(args, dist.get_rank())  # <- culprit
    model = DDP(net)  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.steps):
        x = torch.randn(8, 4)
        loss = (model(x) - x[:, :2]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
