# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Other data, other augmentation and other dropout masks on each rank, one model."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(123 + self.rank)  # masks and augmentation differ, wrapping broadcasts the weights
        random.seed(123 + self.rank)
        self.model = DDP(Net())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def augment(self, x):
        if random.random() < 0.5:
            x = x.flip(1)
        return x + 0.05 * torch.randn_like(x)

    def fit(self, steps):
        for step in range(steps):
            x, y = torch.randn(8, 12) * (1 + self.rank), torch.randint(0, 4, (8,))
            loss = nn.functional.cross_entropy(self.model(self.augment(x)), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer().fit(20)
    dist.destroy_process_group()
