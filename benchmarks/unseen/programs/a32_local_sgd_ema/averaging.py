import copy

import torch
import torch.distributed as dist


class LocalSGD:
    """Ranks train on their own and average their weights every few steps."""

    def __init__(self, model, period, warmup):
        self.model, self.period, self.warmup = model, period, warmup

    def due(self, step):
        return step < self.warmup or (step + 1) % self.period == 0

    @torch.no_grad()
    def __call__(self, step):
        if not self.due(step):
            return False
        flat = torch.nn.utils.parameters_to_vector(self.model.parameters())
        dist.all_reduce(flat)
        torch.nn.utils.vector_to_parameters(flat / dist.get_world_size(), self.model.parameters())
        return True


class ShadowModel:
    """Exponential moving average of the weights, looked at but never trained."""

    def __init__(self, model, decay=0.9):
        self.net = copy.deepcopy(model).requires_grad_(False).eval()
        self.decay = decay
        self.opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.opt, step_size=5, gamma=0.5)

    @torch.no_grad()
    def update(self, model):
        for a, b in zip(self.net.parameters(), model.parameters()):
            a.lerp_(b, 1 - self.decay)
        self.opt.step()
        self.schedule.step()
