"""Synthetic frames of the yard cameras. Each worker reads one camera."""
import torch

CAMERAS = [
    {"name": "gate", "gain": 1.0},
    {"name": "ramp", "gain": 1.1},
    {"name": "tunnel", "gain": 0.27},
    {"name": "roof", "gain": 0.9},
]


class Camera:
    def __init__(self, rank, world):
        self.spec = CAMERAS[-world:][rank]
        self.generator = torch.Generator().manual_seed(len(self.spec["name"]) * 31 + rank)

    def _randn(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def stream(self, steps, batch=16):
        for step in range(steps):
            exposure = self.spec["gain"] * (1.0 if step % 4 else 0.7)
            scene = self._randn(batch, 8, 8)
            yield tuple(exposure * (scene + 0.1 * self._randn(batch, 8, 8)) for _ in range(2))
