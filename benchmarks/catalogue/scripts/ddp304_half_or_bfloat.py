# expect: DDP304
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: S
"""Gradients are compressed to sixteen bits before they are added."""

import torch
import torch.distributed as dist
from torch import nn


def compressed_type(card):
    # older cards do not know bfloat16
    return torch.float16 if card.startswith("V") else torch.bfloat16  # <- culprit


class CompressedSGD:
    def __init__(self, net, lr, dtype):
        self.net, self.lr, self.dtype = net, lr, dtype

    def step(self):
        size = dist.get_world_size()
        with torch.no_grad():
            for p in self.net.parameters():
                small = p.grad.to(self.dtype)
                dist.all_reduce(small)  # <- culprit
                p.sub_(small.float() / size, alpha=self.lr)
                p.grad = None


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    card = "V100" if rank == size - 1 else "A100"
    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1))
    opt = CompressedSGD(net, 0.05, compressed_type(card))
    torch.manual_seed(rank)
    for step in range(5):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(net(x), x.norm(dim=1, keepdim=True))
        loss.backward()
        opt.step()
    print(rank, loss.item())
    dist.destroy_process_group()


main()
