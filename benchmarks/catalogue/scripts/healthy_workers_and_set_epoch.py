# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""A loader with workers and a distributed sampler that is told the epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Stripes(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        picture = torch.rand(1, 12, 12, generator=g)
        upright = index % 2
        picture[:, :, ::3] += float(upright)
        picture[:, ::3] += float(1 - upright)
        return picture, upright


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.conv(x).relu().amax((2, 3)))


def main():
    dist.init_process_group("gloo")
    dataset = Stripes(192)
    sampler = DistributedSampler(dataset, shuffle=True, seed=13)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler, num_workers=2)
    model = DDP(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        hits = torch.zeros(2)
        for picture, upright in loader:
            logits = model(picture)
            loss = nn.functional.cross_entropy(logits, upright)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += torch.tensor([(logits.argmax(1) == upright).sum(), len(upright)])
        dist.all_reduce(hits)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {hits[0] / hits[1]:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
