# expect: DDP312
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: R
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 4


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(9, 18), nn.BatchNorm1d(18), nn.ReLU())
        self.head = nn.Linear(18, CLASSES)

    def forward(self, x):
        return self.head(self.features(x))


def make_batches(rank, size, count=6):
    gen = torch.Generator().manual_seed(rank)
    for i in range(count):
        x = torch.randn(8, 9, generator=gen)
        y = torch.randint(0, CLASSES, (8,), generator=gen)
        if rank == size - 1 and i == 4:
            y[2] = CLASSES  # a class that was added to the annotations later
        yield x, y


def training_step(model, opt, x, y):
    loss = nn.functional.cross_entropy(model(x), y)  # <- culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(Classifier())
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (x, y) in enumerate(make_batches(rank, size)):
    loss = training_step(model, opt, x, y)
print(f"rank {rank}: {loss:.3f}")
dist.destroy_process_group()
