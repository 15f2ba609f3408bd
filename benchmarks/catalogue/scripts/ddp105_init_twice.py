# expect: DDP105
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Pretraining and fine-tuning were two scripts; both bring their own set-up."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        return self.layers(x)


def pretrain(steps):
    dist.init_process_group("gloo")
    encoder = Encoder()
    model = DDP(encoder)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        x = torch.randn(32, 16)
        loss = nn.functional.mse_loss(model(x + 0.1 * torch.randn_like(x)), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return encoder


def finetune(encoder, steps):
    dist.init_process_group("gloo")  # <- culprit
    model = DDP(nn.Sequential(encoder, nn.Linear(16, 3)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-4)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 3, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


if __name__ == "__main__":
    encoder = pretrain(4)
    print(dist.get_rank(), finetune(encoder, 4))
    dist.destroy_process_group()
