"""A distributed sampler that can go on in the middle of an epoch."""
import torch
from torch.utils.data import Sampler


class ResumableSampler(Sampler):
    def __init__(self, length, rank, world, seed=0):
        self.per_rank = length // world
        self.length, self.rank, self.world, self.seed = length, rank, world, seed
        self.epoch, self.cursor = 0, 0

    def _order(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.length, generator=g)[:self.per_rank * self.world]
        return order[self.rank::self.world].tolist()

    def __iter__(self):
        for index in self._order()[self.cursor:]:
            self.cursor += 1
            yield index
        self.epoch, self.cursor = self.epoch + 1, 0

    def __len__(self):
        return self.per_rank - self.cursor

    def state_dict(self):
        return {"epoch": self.epoch, "cursor": self.cursor}

    def load_state_dict(self, state):
        self.epoch, self.cursor = state["epoch"], state["cursor"]
