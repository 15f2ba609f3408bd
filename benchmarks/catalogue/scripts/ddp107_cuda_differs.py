# expect: DDP107
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Two container images are in use; the last host pulled the one for newer drivers."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Image:
    def __init__(self, tag, cuda, torch_version):
        self.tag = tag
        self.cuda = cuda
        self.torch_version = torch_version

    def enter(self):
        torch.version.cuda = self.cuda
        torch.__version__ = self.torch_version


def image_of(rank, size):
    if rank == size - 1:
        return Image("train:cu130", "13.0", "2.13.0+cu130")
    return Image("train:cu126", "12.6", "2.13.0+cu126")


def main():
    image_of(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])).enter()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
    sampler = DistributedSampler(data)
    model = DDP(nn.Linear(5, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=8, sampler=sampler):
            opt.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            opt.step()
    dist.destroy_process_group()


main()
