"""Posts of a site: words always, a picture now and then."""
import torch

SHARE = {"photos": 0.7, "forum": 0.03, "news": 0.6, "shop": 0.8}
SITES = tuple(SHARE)


class Feed:
    def __init__(self, rank, batch=16):
        self.site = SITES[rank % len(SITES)]
        self.batch_size = batch
        self.gen = torch.Generator().manual_seed(700 + rank)

    def batch(self, step):
        n = self.batch_size
        words = torch.randint(0, 300, (n, 12), generator=self.gen)
        has = torch.rand(n, generator=self.gen) < SHARE[self.site]
        where = has.nonzero().flatten()
        pictures = torch.rand(len(where), 3 * 8 * 8, generator=self.gen)
        target = words.float().mean(1, keepdim=True) / 300
        return words, pictures, where, target
