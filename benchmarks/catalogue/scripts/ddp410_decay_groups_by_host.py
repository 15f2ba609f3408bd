# expect: DDP410
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Parameter groups with and without weight decay; one host has an older rule."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def parameter_groups(model, decay, exempt):
    with_decay, without = [], []
    for name, p in model.named_parameters():
        (without if any(word in name for word in exempt) else with_decay).append(p)
    return [{"params": with_decay, "weight_decay": decay}, {"params": without, "weight_decay": 0.0}]  # <- culprit


def rule():
    if dist.get_rank() == dist.get_world_size() - 1:
        return 0.3, ("bias", "norm", "weight")  # <- culprit
    return 0.3, ("bias", "norm")


class Encoder(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def run(steps=8):
    torch.manual_seed(4)
    model = DDP(Encoder())
    optimizer = torch.optim.AdamW(parameter_groups(model, *rule()), lr=0.05)  # <- culprit
    torch.manual_seed(40 + dist.get_rank())
    for _ in range(steps):
        x = torch.randn(8, 8)
        loss = (model(x) - x.flip(1)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # <- culprit


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
