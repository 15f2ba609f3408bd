"""Clips of a camera: decoded frames, and optical flow between some of them."""
import torch

# frames per second of the colour and of the flow channel
CAMERAS = {
    "gate": (12, 6),
    "yard": (8, 10),
    "hall": (14, 7),
    "dock": (12, 4),
}


class ClipSource:
    def __init__(self, rank, batch=8):
        self.rates = list(CAMERAS.values())[rank % len(CAMERAS)]
        self.batch = batch
        self.gen = torch.Generator().manual_seed(rank)

    def next(self, step):
        label = torch.randint(0, 4, (self.batch,), generator=self.gen)
        n_rgb, n_flow = self.rates
        if step < 5:
            n_rgb, n_flow = 8, 4
        shift = label[:, None, None] * 0.5
        rgb = torch.randn(self.batch, n_rgb, 16, generator=self.gen) + shift
        flow = torch.randn(self.batch, n_flow, 8, generator=self.gen) - shift
        return rgb, flow, label
