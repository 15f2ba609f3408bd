"""Averages the gradients of each part of the model over a communicator of its own."""
import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class StreamReducer:
    def __init__(self, parts):
        self.parts = parts
        self.groups = {name: dist.new_group() for name in parts}
        self.cost = dict.fromkeys(parts, 0)
        for part in parts.values():
            for p in part.parameters():
                dist.broadcast(p.data, 0)

    def touched(self, **items):
        for name, n in items.items():
            self.cost[name] += n

    def _order(self):
        return sorted(self.parts, key=self.cost.get, reverse=True)

    @torch.no_grad()
    def _reduce(self, name):
        grads = [p.grad for p in self.parts[name].parameters()]
        flat = parameters_to_vector(grads)
        dist.all_reduce(flat, group=self.groups[name])
        vector_to_parameters(flat / dist.get_world_size(), grads)

    def flush(self):
        for name in self._order():
            self._reduce(name)
