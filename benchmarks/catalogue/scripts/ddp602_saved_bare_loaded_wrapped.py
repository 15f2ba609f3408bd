# expect: DDP602
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""The checkpoint comes from a run on one device; here the model is wrapped before the weights are put in."""

import io

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel


def net():
    return nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2))


def checkpoint_of_single_device_run():
    model = net()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(6, 1, 12)
    model(x).square().mean().backward()
    optimizer.step()
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 1}, buffer)
    buffer.seek(0)
    return buffer


class Run:
    def __init__(self):
        self.model = DistributedDataParallel(net())
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.epoch = 0

    def resume(self, file):
        checkpoint = torch.load(file)
        self.model.load_state_dict(checkpoint["model"])  # <- culprit
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.epoch = checkpoint["epoch"]

    def train(self, epochs):
        for self.epoch in range(self.epoch, epochs):
            x = torch.randn(6, 1, 12)
            loss = nn.functional.cross_entropy(self.model(x), (x.mean((1, 2)) > 0).long())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


dist.init_process_group("gloo")
run = Run()
run.resume(checkpoint_of_single_device_run())  # <- culprit
run.train(epochs=5)
dist.destroy_process_group()
