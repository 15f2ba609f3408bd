# expect: DDP109
# ranks: 2 4
# culprits: range(n)
# outcome: hang
# plain: T
"""Evaluation in a forked process, so that its memory is given back afterwards."""

import multiprocessing as mp
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
        self.model = DDP(self.net)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def train_epoch(self):
        for _ in range(3):
            x = torch.randn(8, 6)
            loss = nn.functional.cross_entropy(self.model(x), (x[:, 0] > x[:, 1]).long())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()

    def evaluate(self):
        signal.alarm(90)
        torch.set_num_threads(1)
        x = torch.randn(40, 6)
        with torch.no_grad():
            right = (self.net(x).argmax(1) == (x[:, 0] > x[:, 1]).long()).sum()
        dist.all_reduce(right)  # <- culprit
        if self.rank == 0:
            print("accuracy", right.item() / 40 / dist.get_world_size())

    def evaluate_in_child(self):
        child = mp.get_context("fork").Process(target=self.evaluate)
        child.start()
        child.join()  # <- culprit


trainer = Trainer()
for epoch in range(2):
    trainer.train_epoch()
    trainer.evaluate_in_child()
dist.destroy_process_group()
