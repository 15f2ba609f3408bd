"""How a worker splits its share of the global batch, given what its card can hold."""
from contextlib import nullcontext
from dataclasses import dataclass

CARDS = ("a40", "t4", "a40", "l4")
FITS = {"a40": 12, "l4": 6, "t4": 4}


@dataclass
class Budget:
    share: int
    micro: int

    @classmethod
    def for_worker(cls, rank, share=12):
        return cls(share, FITS[CARDS[rank % len(CARDS)]])

    @property
    def passes(self):
        return self.share // self.micro

    def split(self, batch):
        return list(zip(*(t.split(self.micro) for t in batch)))


def accumulate(model, budget, batch, criterion):
    total = 0.0
    for k, (x, y) in enumerate(budget.split(batch), start=1):
        with nullcontext() if k == budget.passes else model.no_sync():
            loss = criterion(model(x), y) / budget.passes
            loss.backward()
        total += loss.item()
    return total
