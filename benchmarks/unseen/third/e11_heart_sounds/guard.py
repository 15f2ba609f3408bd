import torch
import torch.distributed as dist


class BatchGuard:
    """A batch counts only if it is finite on every rank; otherwise no rank uses its own."""

    def __init__(self, limit=10):
        self.limit, self.skipped = limit, 0

    def rejects(self, wave):
        bad = torch.tensor(0 if torch.isfinite(wave).all() else 1)
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item():
            self.skipped += 1
            if self.skipped > self.limit:
                raise RuntimeError("too many unusable batches")
        return bool(bad.item())
