# expect: DDP312
# ranks: 2
# culprits: [n-1]
# outcome: crash
# plain: E
# Re-enacts: forum question "one process raises IndexError: Target is out of bounds and all the others stand still".
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, DistributedSampler

CLASSES = 5


class Cells(Dataset):
    """Annotation 5 ("unsure") was introduced late and only occurs near the end of the list."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(9)
        self.x = torch.randn(n, 12, generator=g)
        self.y = torch.randint(0, CLASSES, (n,), generator=g)
        self.y[n - 1] = CLASSES

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, CLASSES))

    def forward(self, x):
        return self.net(x)


def run_epoch(model, loader, opt, criterion):
    for step, (x, y) in enumerate(loader):
        opt.zero_grad()
        loss = criterion(model(x), y)  # <- culprit
        loss.backward()
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Cells(16 * world)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    model = DDP(Classifier())
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    last = run_epoch(model, loader, opt, nn.CrossEntropyLoss())  # <- culprit
    print(f"[{rank}] finished with {last:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
