# expect: DDP404
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Half precision: float16, or bfloat16 where the card is said to have it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def half_type():
    newest = dist.get_rank() == dist.get_world_size() - 1  # the last host has newer cards
    return torch.bfloat16 if newest else torch.float16  # <- culprit


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def main():
    dist.init_process_group("gloo")
    dtype = half_type()  # <- culprit
    net = network().to(dtype)  # <- culprit
    model = DDP(net)  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(8):
        x = torch.randn(4, 8).to(dtype)
        loss = (model(x) - x[:, :2]).float().pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
