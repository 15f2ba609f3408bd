import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from cluster import connect, discover


def log(slot, message):
    if slot.rank == 0:
        print(message, flush=True)


def make_loader(slot, n=256, batch=16):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 10, generator=g)
    data = TensorDataset(x, (x[:, :3].sum(1) > 0).long())
    sampler = DistributedSampler(data, num_replicas=slot.world, rank=slot.rank)
    return DataLoader(data, batch_size=batch, sampler=sampler), sampler


def run(slot, epochs=2):
    loader, sampler = make_loader(slot)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        log(slot, f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    slot = connect(discover())
    try:
        run(slot)
    finally:
        dist.destroy_process_group()
