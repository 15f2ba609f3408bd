import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

from houses import LAGS, HouseholdWindows

HOUSES, EPOCHS = 11, 3


class Tally:
    """Local sums; reduced once per epoch, by everyone."""

    def __init__(self):
        self.sums = torch.zeros(3, dtype=torch.float64)

    def add(self, loss, n):
        self.sums += torch.tensor([loss * n, n, 1.0], dtype=torch.float64)

    def reduce(self):
        total = self.sums.clone()
        dist.all_reduce(total)
        return (total[0] / total[1]).item(), int(total[2])


def forecaster():
    return nn.Sequential(nn.Linear(LAGS, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 1))


def train_epoch(model, opt, data, epoch):
    tally = Tally()
    with Join([model, opt]):
        for x, y in data.epoch(epoch):
            loss = nn.functional.huber_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            tally.add(loss.item(), len(x))
    return tally


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(30)
    model = DDP(forecaster())
    opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=3e-3)
    data = HouseholdWindows(range(rank, HOUSES, world), batch=32)
    for epoch in range(EPOCHS):
        tally = train_epoch(model, opt, data, epoch)
        loss, batches = tally.reduce()
        if rank == 0:
            print(f"epoch {epoch} huber {loss:.4f} over {batches} batches", flush=True)
    print(f"rank {rank} read {int(tally.sums[2])} batches of its own in the last epoch", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
