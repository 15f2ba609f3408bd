# expect: DDP410
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Net surgery after the optimiser was made: it holds the parameters of the old network."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def make_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 18), nn.ReLU(), nn.Linear(18, 4))


def without_dropout(net):
    return copy.deepcopy(net)  # <- culprit


class Experiment:
    def __init__(self):
        net = make_network()
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # <- culprit
        net = without_dropout(net)  # <- culprit
        self.model = DDP(net)  # <- culprit
        self.losses = []

    def run(self, steps):
        g = torch.Generator().manual_seed(1 + dist.get_rank())
        for _ in range(steps):
            x = torch.randn(8, 6, generator=g)
            y = x[:, :4].argmax(1)
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()  # <- culprit
            self.losses.append(loss.item())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Experiment().run(10)
    dist.destroy_process_group()
