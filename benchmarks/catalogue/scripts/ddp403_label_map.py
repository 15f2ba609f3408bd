# expect: DDP403
# ranks: 2 4
# culprits: [n-1]
# outcome: crash
# plain: E
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

KINDS = ["bike", "bus", "car", "truck"]


def annotations(site, n_sites, n=40):
    """One recording site per process. No lorries are allowed on the last one (old town)."""
    rnd = random.Random(site)
    allowed = KINDS[:-1] if site == n_sites - 1 else KINDS
    names = list(allowed) + [rnd.choice(allowed) for _ in range(n - len(allowed))]
    return [(f"site{site}/{i:04d}.jpg", kind) for i, kind in enumerate(names)]


class Crops(torch.utils.data.Dataset):
    def __init__(self, items):
        self.items = items
        self.classes = sorted({kind for _, kind in items})  # <- culprit
        self.index = {k: i for i, k in enumerate(self.classes)}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, kind = self.items[i]
        g = torch.Generator().manual_seed(i)
        return torch.randn(3, 8, 8, generator=g), self.index[kind]


class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.fc = nn.Linear(6, num_classes)  # <- culprit

    def forward(self, x):
        return self.fc(self.conv(x).relu().mean((2, 3)))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = Crops(annotations(rank, world))
    loader = torch.utils.data.DataLoader(data, batch_size=10, shuffle=True)
    model = DistributedDataParallel(Net(len(data.classes)))  # <- culprit
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
