import torch
from torch.utils.data import Dataset, Sampler


class Tiles(Dataset):
    """Tiles with a random flip that is private to the rank."""

    def __init__(self, augment_seed, n=288):
        g = torch.Generator().manual_seed(31)
        self.images = torch.randn(n, 4, 8, 8, generator=g)
        self.cover = (self.images[:, 3].mean((1, 2)) * 20).sigmoid()
        self.augment_seed = augment_seed

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i]
        if hash((self.augment_seed, i)) % 2:
            image = image.flip(-1)
        return image, self.cover[i]


class TileSampler(Sampler):
    """Strided shard of a permutation; `skip` batches were already used before the interruption."""

    def __init__(self, n, rank, world, batch):
        self.n, self.rank, self.world, self.batch = n, rank, world, batch
        self.epoch, self.skip = 0, 0

    def position(self, epoch, skip=0):
        self.epoch, self.skip = epoch, skip

    def __iter__(self):
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(1000 + self.epoch))
        even = order[:self.n // (self.world * self.batch) * self.world * self.batch]
        yield from even[self.rank::self.world][self.skip * self.batch:].tolist()
