# expect: DDP409
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Half precision with gradients averaged by hand, after the scaler has looked for overflows."""

import torch
import torch.distributed as dist
from torch import nn


def average(parameters):
    for p in parameters:
        p.grad.nan_to_num_(0.0, 0.0, 0.0)  # one rank must not spoil the others
        dist.all_reduce(p.grad)
        p.grad.div_(dist.get_world_size())


def batches(rank, world, steps):
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randn(8, 6, generator=g)
        scale = 400.0 if rank == world - 1 and step % 4 == 2 else 1.0  # a few hard samples
        yield x, scale * x.sum(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for x, y in batches(rank, world, 10):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            prediction = net(x)
        loss = nn.functional.mse_loss(prediction.float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # <- culprit
        average(list(net.parameters()))  # <- culprit
        scaler.step(optimizer)  # <- culprit
        scaler.update()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
