"""Who does what: the last rank watches the student, the others train it."""
from functools import cached_property

import torch
import torch.distributed as dist


class Topology:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.watcher = world - 1

    @property
    def watches(self):
        return self.rank == self.watcher

    @cached_property
    def team(self):
        return dist.new_group(list(range(self.world - 1)))

    @torch.no_grad()
    def average(self, tensors):
        """Mean over the ranks that train."""
        for t in tensors:
            dist.all_reduce(t, group=self.team)
            t.div_(self.world - 1)

    @torch.no_grad()
    def publish(self, net):
        for t in net.state_dict().values():
            dist.broadcast(t, src=0)

    def collect(self, value):
        """What each rank reports at the end, in a group that the training left idle."""
        group = dist.new_group(list(range(self.world)))
        values = [None] * self.world
        dist.all_gather_object(values, value, group=group)
        return values
