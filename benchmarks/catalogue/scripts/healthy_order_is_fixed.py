# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""A curriculum, easy rows first: the sampler does not shuffle, so that no epoch need be told to it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Curriculum(Dataset):
    def __init__(self, count):
        x = torch.randn(count, 4, generator=torch.Generator().manual_seed(2))
        self.x = x[x.norm(dim=1).argsort()]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.x[index].norm().reshape(1)


def train(epochs):
    dataset = Curriculum(144)
    loader = DataLoader(dataset, batch_size=6, sampler=DistributedSampler(dataset, shuffle=False))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for x, norm in loader:
            loss = nn.functional.mse_loss(model(x), norm)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    loss = train(epochs=3)
    print(f"rank {dist.get_rank()}: {loss:.4f}", flush=True)
    dist.destroy_process_group()
