import copy

import torch
import torch.distributed as dist


class PeriodicAverager:
    def __init__(self, model, period, warmup=0):
        self.model, self.period, self.warmup = model, period, warmup
        self.count = 0
        self.synchronise(broadcast=True)

    @torch.no_grad()
    def synchronise(self, broadcast=False):
        for p in self.model.parameters():
            if broadcast:
                dist.broadcast(p, src=0)
            else:
                dist.all_reduce(p)
                p.div_(dist.get_world_size())

    def after_step(self):
        self.count += 1
        if self.count <= self.warmup or self.count % self.period == 0:
            self.synchronise()
            return True
        return False


class Ema:
    def __init__(self, model, decay=0.9):
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)
