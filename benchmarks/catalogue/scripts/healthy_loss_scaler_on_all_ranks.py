# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Mixed precision with DDP and a loss scaler: an overflow on one rank reaches all ranks, and all skip the step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def batches(rank, steps):
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randn(8, 6, generator=g)
        yield x, x.sum(1, keepdim=True) * (3000.0 if rank == 1 and step == 4 else 1.0)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for x, y in batches(dist.get_rank(), 10):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            prediction = model(x)
        scaler.scale(nn.functional.mse_loss(prediction.float(), y)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    if dist.get_rank() == 0:
        print("scale at the end", scaler.get_scale())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
