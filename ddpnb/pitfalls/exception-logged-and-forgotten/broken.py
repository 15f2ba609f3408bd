"""Train with a schedule of learning rates; failures are written to the log."""

import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 3
RATES = [0.1, 0.05]


def train():
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATES[0])
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = RATES[epoch]
        for _ in range(4):
            x = torch.randn(16, 8)
            loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    dist.init_process_group("gloo")
    try:
        train()
    except Exception:
        logging.exception("training failed")
    dist.destroy_process_group()


main()
