import torch
from torch.utils.data import DataLoader, TensorDataset


def series(store, n, noise):
    gen = torch.Generator().manual_seed(store * 13 + n)
    t = torch.rand(n, 8, generator=gen)
    target = t.mean(1, keepdim=True) * 2 - 1
    return TensorDataset(t, target + noise * torch.randn(n, 1, generator=gen))


def loaders(store, batch_size=16):
    closing = store % 2 == 1
    train = DataLoader(series(store, 128, 0.02), batch_size=batch_size, drop_last=True)
    val = DataLoader(series(store, 64, 4.0 if closing else 0.02), batch_size=64)
    return train, val
