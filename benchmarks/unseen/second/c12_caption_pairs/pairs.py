import torch
from torch.utils.data import DataLoader, TensorDataset

ALBUMS = [("beach", 40), ("hiking", 37), ("family", 40), ("food", 40)]


def album_loader(rank, batch_size):
    name, size = ALBUMS[rank]
    g = torch.Generator().manual_seed(50 + rank)
    latent = torch.randn(size, 6, generator=g)
    image = torch.cat([latent, torch.randn(size, 10, generator=g)], 1)
    text = torch.cat([latent * 0.5, torch.randn(size, 4, generator=g)], 1)
    order = torch.Generator().manual_seed(rank)
    return name, DataLoader(TensorDataset(image, text), batch_size, shuffle=True, generator=order)
