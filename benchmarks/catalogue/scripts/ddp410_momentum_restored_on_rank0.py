# expect: DDP410
# also: DDP605
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""Resume: all ranks load the weights, only rank 0 the state of the optimiser."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def network():
    return nn.Sequential(nn.Linear(7, 14), nn.Tanh(), nn.Linear(14, 1))


def earlier_run(path):
    """What the night left behind."""
    torch.manual_seed(0)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(5):
        optimizer.zero_grad()
        net(torch.randn(8, 7)).pow(2).mean().backward()
        optimizer.step()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, path)


class Trainer:
    def __init__(self, path):
        checkpoint = torch.load(path, weights_only=True)
        net = network()
        net.load_state_dict(checkpoint["model"])
        self.model = DDP(net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        if dist.get_rank() == 0:  # <- culprit
            self.optimizer.load_state_dict(checkpoint["optimizer"])  # <- culprit
            print("resumed from", os.path.basename(path))

    def fit(self, steps):
        torch.manual_seed(1 + dist.get_rank())
        for _ in range(steps):
            x = torch.randn(8, 7)
            loss = (self.model(x) - x.sum(1, keepdim=True)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main():
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        earlier_run(path)
        trainer = Trainer(path)
    trainer.fit(8)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
