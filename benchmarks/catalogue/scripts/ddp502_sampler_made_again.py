# expect: DDP502
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Denoising auto-encoder; a fresh loader is built at the start of every epoch, so that it 'reshuffles'."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Waves(Dataset):
    def __init__(self, count, points=20):
        g = torch.Generator().manual_seed(9)
        phase = 6.28 * torch.rand(count, 1, generator=g)
        rate = 1 + 3 * torch.rand(count, 1, generator=g)
        self.data = torch.sin(phase + rate * torch.linspace(0, 3, points))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


def make_loader(dataset, batch_size):
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)  # <- culprit
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)  # <- culprit


def train_epoch(model, optimizer, loader):
    total, count = 0.0, 0
    for clean in loader:  # <- culprit
        noisy = clean + 0.2 * torch.randn_like(clean)
        loss = nn.functional.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, count = total + loss.item(), count + 1
    return total / count


def main():
    dist.init_process_group(backend="gloo")
    dataset = Waves(96)
    torch.manual_seed(100 + dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 20)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):  # <- culprit
        loader = make_loader(dataset, batch_size=6)  # <- culprit
        loss = train_epoch(model, optimizer, loader)  # <- culprit
        if dist.get_rank() == 0:
            print(f"{epoch=} {loss=:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
