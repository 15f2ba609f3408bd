import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from data import region_batches
from precision import DynamicScaler


def make_model(dim=10):
    torch.manual_seed(21)
    return nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, 1))


def train(steps=20):
    region = int(os.environ["RANK"])
    model = DDP(make_model())
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = DynamicScaler()
    running = None
    for week, (x, y) in enumerate(region_batches(region, steps)):
        opt.zero_grad()
        loss = (model(x).squeeze(-1) - y).square().mean()
        scaler.backward(loss)
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        if region == 0 and week % 5 == 0:
            print(f"week {week:02d} loss {running:.4f}")
    return model


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
