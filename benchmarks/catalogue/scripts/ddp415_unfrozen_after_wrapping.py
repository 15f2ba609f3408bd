# expect: DDP415
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
"""Gradual unfreezing: the layers that join later were frozen when the model was wrapped."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class GradualUnfreezing:
    def __init__(self, net):
        self.net = net
        for p in net[:-1].parameters():
            p.requires_grad_(False)

    def unfreeze(self, index):
        for p in self.net[index].parameters():
            p.requires_grad_(True)  # <- culprit


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 2))
        self.schedule = GradualUnfreezing(net)
        self.model = DDP(net)  # <- culprit
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def epoch(self, number, batches):
        if number == 1:
            self.schedule.unfreeze(2)  # <- culprit
        for x, y in batches:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(dist.get_rank())
    data = [(torch.randn(8, 6, generator=g), torch.randint(0, 2, (8,), generator=g)) for _ in range(4)]
    trainer = Trainer()
    for epoch in range(3):
        trainer.epoch(epoch, data)
    dist.destroy_process_group()
