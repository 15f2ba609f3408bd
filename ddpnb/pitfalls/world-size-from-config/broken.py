"""Train with the settings of a configuration."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CONFIG = {"nodes": 2, "processes_per_node": 2, "rate": 0.1, "steps": 6}


def start(config):
    world_size = config["nodes"] * config["processes_per_node"]
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=world_size)


def train(config):
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["rate"])
    for _ in range(config["steps"]):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()


def main():
    start(CONFIG)
    train(CONFIG)
    dist.destroy_process_group()


main()
