"""Short-term power forecast; every rank reads the sites assigned to it."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from windows import SiteWindows, sites_of

STEPS = 30


class Forecaster(nn.Module):
    def __init__(self, channels=6, hidden=20):
        super().__init__()
        self.rnn = nn.GRU(channels, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1]).squeeze(-1)


def broadcast_parameters(model):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)


def average_gradients(model, world):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
        offset += p.numel()


def cycle(loader):
    while True:
        yield from loader


def main():
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(20 + rank)
    data = SiteWindows(sites_of(rank, world))
    batches = cycle(DataLoader(data, batch_size=32, shuffle=True, drop_last=True))
    model = Forecaster()
    broadcast_parameters(model)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.HuberLoss()

    for step in range(1, STEPS + 1):
        x, y = next(batches)
        loss = criterion(model(x), y)
        opt.zero_grad()
        loss.backward()
        average_gradients(model, world)
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step:3d}  lr {opt.param_groups[0]['lr']:.1e}  {len(data)} windows", flush=True)

    dist.barrier()
    if rank == 0:
        torch.save(model.state_dict(), "/tmp/turbine_forecaster.pt")
        print("saved")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
