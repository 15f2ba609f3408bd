# expect: DDP401
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""A classifier with an auxiliary head that the forward pass no longer calls."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Classifier(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)
        self.aux_head = nn.Linear(32, classes)  # <- culprit

    def forward(self, x):
        return self.head(self.body(x))  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Classifier())  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for step in range(10):
        x = torch.randn(8, 10)
        y = torch.randint(0, 4, (8,))
        optimizer.zero_grad()
        logits = model(x)  # <- culprit
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
