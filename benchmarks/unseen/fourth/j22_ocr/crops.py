"""Crops of text lines; now and then a file is broken."""
import torch


class CropStream:
    def __init__(self, rank, batch=8, chars=6):
        self.rank = rank
        self.batch, self.chars = batch, chars
        self.gen = torch.Generator().manual_seed(rank)

    def _decode(self, step, index):
        glyphs = torch.randint(0, 12, (self.chars,), generator=self.gen)
        image = torch.randn(self.chars, 20, generator=self.gen) * 0.2
        image[torch.arange(self.chars), glyphs] += 1.0
        if (step * 31 + index * 7 + self.rank * 13) % 97 == 5:
            raise OSError(f"line_{step:03d}_{index}.png: truncated")
        return image, glyphs

    def fetch(self, step):
        pairs = [self._decode(step, i) for i in range(self.batch)]
        images = torch.stack([p[0] for p in pairs])
        if (step + 5 * self.rank) % 17 == 9:
            images[0, 0, 0] = float("nan")
        return images, torch.stack([p[1] for p in pairs])
