# expect: DDP102
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
"""Trainers plus one evaluator that was meant to be started by hand on another machine."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Config:
    trainers = int(os.environ["WORLD_SIZE"])
    evaluators = 1
    lr = 0.01
    steps = 5

    @property
    def world_size(self):
        return self.trainers + self.evaluators


def main(cfg):
    dist.init_process_group(  # <- culprit
        "gloo", init_method="env://", rank=int(os.environ["RANK"]), world_size=cfg.world_size
    )
    trainers = dist.new_group(list(range(cfg.trainers)))
    model = DistributedDataParallel(nn.Linear(4, 2), process_group=trainers)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for _ in range(cfg.steps):
        opt.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        opt.step()
    dist.destroy_process_group()


main(Config())
