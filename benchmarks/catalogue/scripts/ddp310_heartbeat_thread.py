# expect: DDP310
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""A heartbeat thread sums up the progress of all processes while the main thread trains."""

import threading

import torch
import torch.distributed as dist
from torch import nn


class Heartbeat(threading.Thread):
    def __init__(self, beats):
        super().__init__(daemon=True)
        self.beats = beats
        self.progress = torch.zeros(1)
        self.seen = []

    def run(self):
        for _ in range(self.beats):
            value = self.progress.clone()
            dist.all_reduce(value)  # <- culprit
            self.seen.append(value.item())


def train(net, steps, heartbeat):
    size = dist.get_world_size()
    for step in range(steps):
        x = torch.randn(8, 1)
        loss = (net(x) - 2 * x).pow(2).mean()
        net.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad.view(1))  # <- culprit
            p.data -= 0.1 * p.grad / size
        heartbeat.progress.fill_(step)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    heartbeat = Heartbeat(beats=120)
    heartbeat.start()
    loss = train(nn.Linear(1, 1, bias=False), 120, heartbeat)
    heartbeat.join()
    print(dist.get_rank(), loss, heartbeat.seen[-1])
    dist.destroy_process_group()


main()
