# expect: DDP108
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Groups are created from a table; the last rank goes through its table the other way."""

import torch
import torch.distributed as dist


class Topology:
    def __init__(self):
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        members = {"all": list(range(self.size)), "workers": list(range(self.size - 1)) or [0]}
        names = sorted(members, reverse=self.is_tail())  # <- culprit
        self.groups = {}
        for name in names:
            self.groups[name] = dist.new_group(members[name])  # <- culprit

    def is_tail(self):
        return self.rank == self.size - 1

    def mean(self, tensor, name):
        dist.all_reduce(tensor, group=self.groups[name])
        return tensor / dist.get_world_size(self.groups[name])


if __name__ == "__main__":
    dist.init_process_group("gloo")
    topology = Topology()
    state = torch.rand(5)
    for _ in range(3):
        state = topology.mean(state, "all")
        if not topology.is_tail():
            state = topology.mean(state, "workers")
    print(topology.rank, state)
    dist.destroy_process_group()
