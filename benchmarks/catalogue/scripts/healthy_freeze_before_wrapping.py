# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Fine-tuning: the backbone is frozen first, then the model is wrapped; rewrapped to unfreeze."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class FineTune(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.relu(self.backbone(x)))


def phase(net, trainable, steps, lr):
    for name, p in net.named_parameters():
        p.requires_grad_(name.startswith(trainable))
    model = DDP(net)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=lr)
    for _ in range(steps):
        x, y = torch.randn(8, 8), torch.randint(0, 3, (8,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = FineTune()
    torch.manual_seed(1 + dist.get_rank())
    phase(net, ("head",), 8, 0.1)
    phase(net, ("head", "backbone"), 8, 0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
