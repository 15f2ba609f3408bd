# expect: DDP502
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Training and validation, each with a sampler; the epoch is told to one of them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Parity(Dataset):
    def __init__(self, count, seed):
        self.bits = torch.randint(0, 2, (count, 7), generator=torch.Generator().manual_seed(seed)).float()

    def __len__(self):
        return len(self.bits)

    def __getitem__(self, index):
        bits = self.bits[index]
        return bits, bits.sum().remainder(2).long()


def loaders(batch_size=10):
    train, valid = Parity(200, seed=1), Parity(40, seed=2)
    train_sampler = DistributedSampler(train, shuffle=True)  # <- culprit
    valid_sampler = DistributedSampler(valid, shuffle=False)
    return (
        DataLoader(train, batch_size, sampler=train_sampler),
        DataLoader(valid, batch_size, sampler=valid_sampler),
    )


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = torch.zeros(2)
    for bits, parity in loader:
        hits[0] += (model.module(bits).argmax(1) == parity).sum()
        hits[1] += len(parity)
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def main():
    dist.init_process_group("gloo")
    train_loader, valid_loader = loaders()
    model = DDP(nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):  # <- culprit
        valid_loader.sampler.set_epoch(epoch)  # <- culprit
        model.train()
        for bits, parity in train_loader:  # <- culprit
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(bits), parity).backward()
            optimizer.step()
        score = accuracy(model, valid_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} accuracy {score:.2f}", flush=True)
    dist.destroy_process_group()


main()
