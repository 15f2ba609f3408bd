# expect: DDP412
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Synchronised batch normalisation, converted when the model is wrapped already (it refuses CPU tensors too)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def build(sync_bn=True):
    torch.manual_seed(0)
    model = DDP(ConvNet())  # <- culprit
    if sync_bn:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # <- culprit
    return model


def main():
    dist.init_process_group("gloo")
    model = build()  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        x, y = torch.randn(4, 3, 6, 6), torch.randint(0, 4, (4,))
        loss = nn.functional.cross_entropy(model(x), y)  # <- culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
