"""Small decisions that all ranks have to take in the same way."""
import torch
import torch.distributed as dist


def anyone(flag):
    vote = torch.tensor(float(bool(flag)))
    dist.all_reduce(vote, op=dist.ReduceOp.MAX)
    return vote.item() > 0


def everyone(flag):
    return not anyone(not flag)


class SharedScale:
    """Scale of a sensor over all ranks, computed again only when some rank has no value."""

    def __init__(self):
        self._known = {}

    def forget(self, sensor):
        self._known.pop(sensor, None)

    def get(self, sensor, window):
        if everyone(sensor in self._known):
            return self._known[sensor]
        moments = torch.stack([window.square().sum(), torch.tensor(float(window.numel()))])
        dist.all_reduce(moments)
        self._known[sensor] = (moments[0] / moments[1]).sqrt().item()
        return self._known[sensor]
