import torch
import torch.distributed as dist


class LaneSync:
    """Averages the gradients of each part of the model over a lane of its own."""

    def __init__(self, parts):
        self.parts = parts
        self.world = dist.get_world_size()
        self.lanes = {name: dist.new_group() for name in sorted(parts)}

    def _flush(self, name):
        grads = [p.grad for p in self.parts[name].parameters()]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat, group=self.lanes[name])
        flat /= self.world
        at = 0
        for g in grads:
            g.copy_(flat[at:at + g.numel()].view_as(g))
            at += g.numel()

    def touched(self, name):
        return sum(int((p.grad != 0).any(dim=-1).sum()) for p in self.parts[name].parameters())

    def step(self):
        cost = {name: self.touched(name) for name in self.parts}
        for name in sorted(cost, key=lambda n: (-cost[n], n)):
            self._flush(name)
