"""Dynamic loss scaling for half precision losses (our CPU fallback of the CUDA scaler)."""
import torch


class LossScaler:
    def __init__(self, initial=1024.0, growth_interval=12):
        self.scale = initial
        self.growth_interval = growth_interval
        self.good_steps = 0
        self.skipped = 0

    def backward(self, loss):
        (loss * self.scale).backward()
        self._last = loss.detach()

    def step(self, optimizer):
        scaled = (self._last * self.scale).half()
        if not torch.isfinite(scaled):
            self.scale = max(self.scale / 2, 1.0)
            self.good_steps = 0
            self.skipped += 1
            return False
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.div_(self.scale)
        optimizer.step()
        self.good_steps += 1
        if self.good_steps % self.growth_interval == 0:
            self.scale = min(self.scale * 2, 4096.0)
        return True
