import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from optim import PlateauController

DRIFT = {1: 6.0}


class Weather:
    """Stations of one region per rank; regions are not equally noisy."""

    def __init__(self, rank, n):
        g = torch.Generator().manual_seed(30 + rank)
        self.x = torch.randn(n, 8, generator=g)
        self.y = self.x.sum(1, keepdim=True) + 0.05 * torch.randn(n, 1, generator=g)
        self.drift = DRIFT.get(rank, 0.0)

    def train_batches(self, size):
        cut = len(self.x) * 3 // 4
        yield from zip(self.x[:cut].split(size), self.y[:cut].split(size))

    def val_batches(self, size):
        cut = len(self.x) * 3 // 4
        for x, y in zip(self.x[cut:].split(size), self.y[cut:].split(size)):
            yield x, y * (1 - self.drift)


@torch.no_grad()
def validate(model, data, criterion):
    model.eval()
    losses = [criterion(model(x), y).item() for x, y in data.val_batches(16)]
    model.train()
    return losses


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = Weather(rank, 192)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = PlateauController(optimizer)
    criterion = nn.MSELoss()
    for epoch in range(6):
        for x, y in data.train_batches(24):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        mean = controller.step(validate(model, data, criterion))
        if rank == 0:
            print(f"epoch {epoch} val {mean:.4f} lr {controller.lr:g}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
