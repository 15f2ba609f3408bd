import torch


class DynamicScaler:
    """Loss scaling for emulated half precision gradients."""

    def __init__(self, init_scale=2.0**10, limit=65504.0, growth_interval=200):
        self.scale = init_scale
        self.limit = limit
        self.growth_interval = growth_interval
        self._good = 0

    def backward(self, loss):
        scaled = loss * self.scale
        if scaled.item() > self.limit:
            self.scale /= 2
            self._good = 0
            scaled = loss * self.scale
        else:
            self._good += 1
            if self._good >= self.growth_interval:
                self.scale *= 2
                self._good = 0
        scaled.backward()

    @torch.no_grad()
    def unscale_(self, optimizer):
        inv = 1.0 / self.scale
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(inv)

    def state_dict(self):
        return {"scale": self.scale, "good": self._good}
