"""Train a classifier on a list of labelled samples, each rank on its part."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = {"bus": 0, "car": 1, "truck": 2}


class Vehicles(Dataset):
    def __init__(self):
        self.names = ["car", "bus", "truck", "car"] * 12
        self.names[33] = "truck "  # typed by hand
        self.features = torch.randn(len(self.names), 8, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return self.features[index], CLASSES[self.names[index]]


def main():
    dist.init_process_group("gloo")
    data = Vehicles()
    sampler = DistributedSampler(data, shuffle=False)
    model = DistributedDataParallel(nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    dist.destroy_process_group()


main()
