# expect: DDP110
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def choose_interface(rank, size):
    """The last machine is supposed to have the fast network card."""
    if rank == size - 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "ib0"  # <- culprit
        os.environ["NCCL_SOCKET_IFNAME"] = "ib0"


def main():
    choose_interface(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.init_process_group("gloo")  # <- culprit
    model = DistributedDataParallel(nn.Linear(9, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        opt.zero_grad()
        model(torch.randn(2, 9)).exp().sum().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
