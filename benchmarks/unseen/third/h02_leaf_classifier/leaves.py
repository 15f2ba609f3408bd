"""Synthetic leaf images: a green blade with spots whose colour gives the disease."""
import torch
from torch.utils.data import DataLoader, Dataset


class LeafImages(Dataset):
    def __init__(self, n, n_classes, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(n_classes, (n,), generator=g)
        self.noise = torch.randn(n, 3, size, size, generator=g) * 0.3
        self.tint = torch.randn(n_classes, 3, 1, 1, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        label = self.labels[index]
        image = self.noise[index] + 0.4 * self.tint[label]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, label


def build_loaders(cfg):
    train = LeafImages(288, cfg["n_classes"], cfg["size"], seed=1)
    val = LeafImages(90, cfg["n_classes"], cfg["size"], seed=2)
    train_loader = DataLoader(train, batch_size=cfg["batch_size"], shuffle=True, drop_last=True)
    val_loader = DataLoader(val, batch_size=cfg["batch_size"], shuffle=False)
    return train_loader, val_loader
