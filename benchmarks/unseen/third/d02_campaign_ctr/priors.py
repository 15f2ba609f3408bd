"""Click-through priors per campaign, counted over the logs of all workers."""
from collections import OrderedDict

import torch
import torch.distributed as dist

ROW_BYTES = 48


class ClickLog:
    def __init__(self, shard, n_campaigns, rows):
        g = torch.Generator().manual_seed(100 + shard)
        self.campaign = torch.randint(0, n_campaigns, (rows,), generator=g)
        self.features = torch.randn(rows, 8, generator=g)
        logits = self.features[:, 0] + 0.3 * self.campaign - 1.0
        self.clicked = (torch.rand(rows, generator=g) < logits.sigmoid()).float()

    def __len__(self):
        return len(self.campaign)

    @property
    def nbytes(self):
        return len(self) * ROW_BYTES

    def rows_of(self, campaign):
        return (self.campaign == campaign).nonzero().flatten()


class PriorStore:
    """Keeps the most recently used priors in what the log leaves of the memory budget."""

    def __init__(self, log, budget, entry_bytes=4096):
        self.log = log
        self.capacity = max(1, (budget - log.nbytes) // entry_bytes)
        self._recent = OrderedDict()

    def _count(self, campaign):
        rows = self.log.rows_of(campaign)
        counts = torch.stack([self.log.clicked[rows].sum(), torch.tensor(float(len(rows)))])
        dist.all_reduce(counts)
        return ((counts[0] + 1) / (counts[1] + 2)).item()

    def lookup(self, campaign):
        prior = self._recent.pop(campaign, None)
        if prior is None:
            prior = self._count(campaign)
        self._recent[campaign] = prior
        while len(self._recent) > self.capacity:
            self._recent.popitem(last=False)
        return prior


class Calibrator:
    def __init__(self, store, strength=0.5):
        self.store = store
        self.strength = strength

    def offset(self, campaign):
        p = torch.tensor(self.store.lookup(campaign))
        return self.strength * torch.logit(p)
