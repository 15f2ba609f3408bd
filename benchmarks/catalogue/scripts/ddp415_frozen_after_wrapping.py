# expect: DDP415
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Fine-tuning in two phases: after some steps the backbone is frozen, in the wrapped model."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


def freeze(module):
    for p in module.parameters():
        p.requires_grad = False  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for step in range(8):
        if step == 3:
            freeze(model.module.backbone)  # <- culprit
        x, y = torch.randn(8, 8), torch.randint(0, 3, (8,))
        loss = nn.functional.cross_entropy(model(x), y)  # <- culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
