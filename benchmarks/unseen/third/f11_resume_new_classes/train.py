"""Saw-mill defect classifier: pretrain on 4 classes, resume and add two more."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from resume import resume, save, seed_classes

CLASSES, DIM = 6, 24


class Defects(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(DIM, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 32))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def boards(g, known, batch=24):
    y = torch.randint(0, known, (batch,), generator=g)
    x = torch.randn(batch, DIM, generator=g)
    x[:, :CLASSES] += 2 * nn.functional.one_hot(y, CLASSES)
    return x, y


def fit(model, optimizer, first, last, known):
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(first * 50 + rank)
    for step in range(first, last):
        x, y = boards(g, known)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for buffer in model.module.buffers():          # one set of statistics for the export
        dist.broadcast(buffer, src=0)
    if rank == 0:
        print(f"step {last}: {loss.item():.4f}", flush=True)


def make(seed):
    torch.manual_seed(seed)
    model = DDP(Defects())
    return model, torch.optim.Adam(model.parameters(), lr=4e-3)


def main():
    dist.init_process_group("gloo")
    model, optimizer = make(dist.get_rank())
    fit(model, optimizer, 0, 15, known=4)
    save(model, optimizer, 15)

    model, optimizer = make(100 + dist.get_rank())
    step = resume(model, optimizer)
    g = torch.Generator().manual_seed(700 + dist.get_rank())
    x, y = boards(g, CLASSES)
    model.eval()
    with torch.no_grad():
        features = torch.relu(model.module.body(x))
    model.train()
    seed_classes(model.module.head, features, y, fresh=(4, 5))
    fit(model, optimizer, step, step + 20, known=CLASSES)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
