# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Training data are split; the small validation set is evaluated whole on every rank, which is cheap and simple."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def xor(count=200):
    x = torch.randn(count, 2, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = sum((model.module(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = os.path.join(tempfile.gettempdir(), "xor-logs")
    os.makedirs(folder, exist_ok=True)
    train, valid = random_split(xor(), [160, 40], generator=torch.Generator().manual_seed(0))
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=8, sampler=sampler)
    valid_loader = DataLoader(valid, batch_size=20)
    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with open(os.path.join(folder, f"rank{rank}.log"), "w") as log:
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for x, y in train_loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            print(f"epoch {epoch}: accuracy {accuracy(model, valid_loader):.2f}", file=log)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
