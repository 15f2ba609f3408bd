# expect: DDP305
# also: DDP303
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: A
"""Mixture of experts: tokens travel to the process that holds their expert."""

import torch
import torch.distributed as dist
from torch import nn


class Router(nn.Module):
    def __init__(self, width, experts, capacity):
        super().__init__()
        self.experts = experts
        self.capacity = capacity
        self.expert = nn.Linear(width, width)

    def forward(self, tokens):
        send = [self.capacity] * self.experts
        buffer = tokens[: sum(send)].contiguous()
        received = torch.empty_like(buffer)
        dist.all_to_all_single(received, buffer, send, send)  # <- culprit
        out = self.expert(received)
        back = torch.empty_like(out)
        dist.all_to_all_single(back, out.detach(), send, send)
        return back


def capacity_factor(rank, size):
    return 1.0 if rank < size - 1 else 1.5  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    capacity = int(4 * capacity_factor(rank, size))
    layer = Router(8, size, capacity)
    for _ in range(3):
        mixed = layer(torch.randn(8 * size, 8))
    print(rank, mixed.shape)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
