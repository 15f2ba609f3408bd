import torch
import torch.distributed as dist


class SharedStopper:
    """Stops when the ranks, each by its own score, agree that nothing improves."""

    def __init__(self, patience, delta):
        self.patience, self.delta = patience, delta
        self.best, self.wait = float("inf"), 0

    def __call__(self, score):
        if score < self.best - self.delta:
            self.best, self.wait = score, 0
        else:
            self.wait += 1
        willing = torch.tensor([int(self.wait >= self.patience)])
        dist.all_reduce(willing, op=dist.ReduceOp.MIN)
        return bool(willing.item())
