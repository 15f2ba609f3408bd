"""Train on images of one byte per pixel, in a container that allows workers only small files in shared memory."""

import resource

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SHARED_MEMORY = 1 << 20  # bytes for a batch, as where /dev/shm is small


class Images(Dataset):
    def __init__(self, rank):
        self.pixels = torch.randint(256, (64, 3, 64, 64), generator=torch.Generator().manual_seed(rank)).byte()

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.pixels[index]


def container(worker):
    resource.setrlimit(resource.RLIMIT_FSIZE, (SHARED_MEMORY, SHARED_MEMORY))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    loader = DataLoader(Images(dist.get_rank()), batch_size=32, num_workers=1, worker_init_fn=container)
    model = DistributedDataParallel(nn.Conv2d(3, 4, 8, stride=8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images in loader:
        optimizer.zero_grad()
        model(images.float() / 255).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
