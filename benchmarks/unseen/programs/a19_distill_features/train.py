import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from losses import DistillationLoss, unwrap


class Student(nn.Module):
    def __init__(self, dim=12, hidden=24, classes=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.head = nn.Linear(hidden, classes)

    def features(self, x):
        return self.encoder(x)

    def classify(self, h):
        return self.head(torch.relu(h))

    def forward(self, x):
        return self.classify(self.features(x))


def make_data(n=512):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 12, generator=g)
    return TensorDataset(x, x[:, :4].argmax(1))


@torch.no_grad()
def accuracy(model, loader):
    hits = torch.zeros(2)
    for x, y in loader:
        hits += torch.tensor([(unwrap(model)(x).argmax(1) == y).sum().item(), float(len(y))])
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def main():
    dist.init_process_group("gloo")
    master = os.environ["RANK"] == "0"
    torch.manual_seed(0)
    student = Student()
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        nn.init.normal_(p, std=0.3)
    criterion = DistillationLoss(teacher)
    data = make_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DDP(student)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = criterion(model, x, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
        acc = accuracy(model, loader)
        if master:
            print(f"epoch {epoch} loss {loss.item():.3f} acc {acc:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
