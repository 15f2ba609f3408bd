"""Averages of the weights, and the decision whether a step is usable."""
import torch
import torch.distributed as dist


class WeightAverage:
    """Kept by the exporting worker only."""

    def __init__(self, module, decay=0.95):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module):
        for k, v in module.state_dict().items():
            self.shadow[k].lerp_(v, 1 - self.decay)


def usable(loss):
    bad = torch.tensor(0 if torch.isfinite(loss) else 1)
    dist.all_reduce(bad, op=dist.ReduceOp.MAX)
    return bad.item() == 0
