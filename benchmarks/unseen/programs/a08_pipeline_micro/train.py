import argparse

import torch
import torch.distributed as dist
from torch import nn

from schedule import GPipe


def make_stage(rank, world, width, classes):
    torch.manual_seed(7 + rank)
    layers = [nn.Linear(width, width), nn.ReLU()]
    if rank == world - 1:
        layers += [nn.Linear(width, classes)]
    return nn.Sequential(*layers)


class Loader:
    def __init__(self, total, batch, width, classes):
        g = torch.Generator().manual_seed(1)
        self.x = torch.randn(total, width, generator=g)
        self.y = torch.randint(0, classes, (total,), generator=g)
        self.batch = batch

    def __iter__(self):
        yield from zip(self.x.split(self.batch), self.y.split(self.batch))


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--samples", type=int, default=100)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--micro", type=int, default=8)
    p.add_argument("--width", type=int, default=24)
    p.add_argument("--epochs", type=int, default=2)
    return p.parse_args()


def main():
    a = parse()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = make_stage(rank, world, a.width, classes=5)
    opt = torch.optim.Adam(stage.parameters(), lr=1e-3)
    pipe = GPipe(stage, rank, world, a.micro, a.width)
    data = Loader(a.samples, a.batch, a.width, classes=5)
    for epoch in range(a.epochs):
        for x, y in data:
            opt.zero_grad()
            losses = pipe.run(len(x), inputs=x, targets=y, loss_fn=nn.functional.cross_entropy)
            opt.step()
        if pipe.is_last:
            print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
