"""Heart sound recordings; a few files were cut off or clipped when they were uploaded."""
import time

import torch
from torch.utils.data import Dataset

TRUNCATED = {19, 58, 97}
CLIPPED = {33, 34, 35, 80}
SLOW_STORE = range(40, 48)


class DecodeError(ValueError):
    pass


def decode(i, length=64):
    if i in TRUNCATED:
        raise DecodeError(f"recording {i} ends early")
    if i in SLOW_STORE:
        time.sleep(0.04)
    g = torch.Generator().manual_seed(i)
    t = torch.linspace(0, 6.28, length)
    murmur = i % 2
    wave = torch.sin((3 + 2 * murmur) * t) + 0.3 * torch.randn(length, generator=g)
    if i in CLIPPED:
        wave = torch.full_like(wave, float("inf"))      # saturated export
    return wave, murmur


class Recordings(Dataset):
    def __init__(self, n=144):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        try:
            wave, murmur = decode(i)
        except DecodeError:
            wave, murmur = decode(i + 1)
        return wave, torch.tensor(murmur)
