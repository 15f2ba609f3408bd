import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Plates(Dataset):
    def __init__(self, n=240, classes=4):
        gen = torch.Generator().manual_seed(77)
        self.y = torch.randint(0, classes, (n,), generator=gen)
        base = torch.randn(classes, 1, 12, 12, generator=gen)
        self.x = base[self.y] + 0.4 * torch.randn(n, 1, 12, 12, generator=gen)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def get_loader(args, train=True):
    dataset = Plates()
    sampler = DistributedSampler(
        dataset, num_replicas=dist.get_world_size(), rank=args.local_rank, shuffle=train
    )
    return DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=train)
