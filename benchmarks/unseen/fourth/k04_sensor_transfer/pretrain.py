import torch
from torch import nn


def make_encoder(n_channels=9, width=24):
    return nn.Sequential(nn.Linear(n_channels, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())


def pretrain_encoder(x, path, steps=60):
    """Short reconstruction run on the unlabelled windows; leaves the encoder's weights in `path`."""
    encoder = make_encoder(x.shape[1])
    decoder = nn.Linear(24, x.shape[1])
    opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.mse_loss(decoder(encoder(x)), x).backward()
        opt.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(encoder.state_dict(), path)
