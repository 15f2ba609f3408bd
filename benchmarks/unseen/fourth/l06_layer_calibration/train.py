"""Fine-tunes a deep stack, then calibrates the scale of its layers, shared between the ranks."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from groups import long_section, partition

WIDTH = 16
DEPTH = {2: 4, 3: 8, 4: 12}
PER_RANK = 4


class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))
        self.head = nn.Linear(WIDTH, 1)
        self.register_buffer("scales", torch.ones(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + 0.1 * torch.tanh(layer(x))
        return self.head(x)


def finetune(model, rank, steps):
    net = DDP(model, broadcast_buffers=False)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    gen = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(8, WIDTH, generator=gen)
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def search_scale(layer, samples):
    best, best_err = 1.0, float("inf")
    for cand in torch.linspace(0.5, 1.5, 11):
        quant = torch.round(layer.weight * 16 * cand) / (16 * cand)
        err = (samples @ (quant - layer.weight).T).pow(2).mean().item()
        if err < best_err:
            best, best_err = cand.item(), err
    time.sleep(0.02)
    return best


def calibrate(model, rank):
    names = list(range(len(model.layers)))
    mine = partition(names, rank, PER_RANK)
    found = torch.zeros(len(names))
    if not mine:
        return found
    samples = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(5))
    with torch.no_grad(), long_section(minutes=20):
        for i in mine:
            found[i] = search_scale(model.layers[i], samples)
    return found


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = Stack(DEPTH[world])
    loss = finetune(model, rank, steps=6)
    found = calibrate(model, rank)
    dist.all_reduce(found)
    model.scales.copy_(found)
    loss = finetune(model, rank, steps=3)
    if rank == 0:
        print(f"loss {loss:.4f} scales {[round(s, 2) for s in model.scales.tolist()]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
