from dataclasses import dataclass

import torch


@dataclass
class Region:
    name: str
    classes: tuple


REGIONS = [
    Region("coast", (0, 1, 2)),
    Region("city", (0, 2, 3, 4, 5, 7)),
    Region("forest", (0, 1, 6)),
    Region("steppe", (0, 1, 3)),
]


class TileSource:
    def __init__(self, region, seed, size=16, batch=4):
        self.region = region
        self.gen = torch.Generator().manual_seed(seed)
        self.size, self.batch = size, batch

    def next(self):
        pick = torch.randint(0, len(self.region.classes), (self.batch, self.size, self.size),
                             generator=self.gen)
        mask = torch.tensor(self.region.classes)[pick]
        noise = torch.randn(self.batch, 3, self.size, self.size, generator=self.gen)
        image = noise * 0.3 + mask.unsqueeze(1) / 8
        return image, mask
