# expect: DDP504
# also: DDP308
# ranks: 2
# culprits: range(1, n)
# outcome: any
# plain: R
# Re-enacts: issue "DDP hangs with uneven batches": the data are dealt out by hand and do not come out even.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset


def load_dataset(world):
    g = torch.Generator().manual_seed(0)
    n = 16 * world + 1
    x = torch.randn(n, 8, generator=g)
    return TensorDataset(x, x.sum(1, keepdim=True))


def my_share(dataset, rank, world):
    return Subset(dataset, range(rank, len(dataset), world))  # <- culprit


def train(model, loader, opt):
    for i, (x, y) in enumerate(loader):  # <- culprit
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return i + 1


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    share = my_share(load_dataset(world), rank, world)  # <- culprit
    loader = DataLoader(share, batch_size=4, shuffle=True)  # <- culprit
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        n = train(model, loader, opt)  # <- culprit
        print(f"[{rank}] epoch {epoch}: {n} batches", flush=True)
    dist.destroy_process_group()
