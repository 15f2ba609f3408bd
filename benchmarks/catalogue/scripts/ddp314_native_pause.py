# expect: DDP314
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""The main process lets a licence manager confirm each evaluation; its library just sleeps."""

import ctypes

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SECONDS_UNTIL_RETRY = 600


class Licence:
    def __init__(self, seats):
        self.native = ctypes.PyDLL(None)
        self.seats = seats

    def acquire(self):
        while self.seats == 0:
            self.native.sleep(SECONDS_UNTIL_RETRY)  # <- culprit
        self.seats -= 1


def evaluate(net, licence):
    licence.acquire()  # <- culprit
    with torch.no_grad():
        return net(torch.randn(10, 7)).var().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    licence = Licence(seats=2)
    model = DDP(nn.Linear(7, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(4):
        for _ in range(2):
            opt.zero_grad()
            model(torch.randn(5, 7)).sin().mean().backward()
            opt.step()
        if rank == 0:
            print(epoch, evaluate(model.module, licence))
    dist.destroy_process_group()


main()
