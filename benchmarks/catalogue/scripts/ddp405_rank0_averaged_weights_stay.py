# expect: DDP405
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""Rank 0 evaluates with averaged weights (EMA) in the middle of training."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Ema:
    def __init__(self, module, decay=0.7):
        self.decay = decay
        self.shadow = copy.deepcopy(module.state_dict())

    @torch.no_grad()
    def update(self, module):
        for key, value in module.state_dict().items():
            self.shadow[key].lerp_(value, 1 - self.decay)

    def apply_to(self, module):
        module.load_state_dict(self.shadow)  # <- culprit


class Trainer:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.ema = Ema(self.model.module)

    def evaluate(self):
        net = self.model.module
        self.ema.apply_to(net)  # <- culprit
        net.eval()
        with torch.no_grad():
            x = torch.linspace(-1, 1, 30).reshape(5, 6)
            score = (net(x) - x.sum(1, keepdim=True)).abs().mean()
        net.train()
        return score.item()

    def fit(self, steps):
        g = torch.Generator().manual_seed(self.rank)
        for step in range(steps):
            x = torch.randn(8, 6, generator=g)
            loss = (self.model(x) - x.sum(1, keepdim=True)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.ema.update(self.model.module)
            if step == 5 and self.rank == 0:  # <- culprit
                print("evaluation", self.evaluate())  # <- culprit


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer().fit(12)
    dist.destroy_process_group()
