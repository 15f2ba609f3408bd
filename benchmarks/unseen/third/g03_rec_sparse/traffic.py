from dataclasses import dataclass

import torch

MARKETS = ["emea", "amer", "apac", "latam"]
ASSORTMENT = {"emea": 30, "amer": 34, "apac": 36, "latam": 28}
LAUNCHES = {"apac": (13, 300)}  # market -> (day, new articles)


@dataclass
class Traffic:
    market: str

    @classmethod
    def for_rank(cls, rank, world):
        return cls(MARKETS[-world:][rank])

    def catalogue(self, step):
        day, extra = LAUNCHES.get(self.market, (10**6, 0))
        return ASSORTMENT[self.market] + extra * (step >= day)

    def batch(self, step, size=96):
        g = torch.Generator().manual_seed(1000 * MARKETS.index(self.market) + step)
        items = torch.randint(0, self.catalogue(step), (size,), generator=g)
        context = torch.randn(size, 4, generator=g)
        clicked = ((items % 3 == 0).float() + context[:, 0] > 0.5).float()
        return items, context, clicked
