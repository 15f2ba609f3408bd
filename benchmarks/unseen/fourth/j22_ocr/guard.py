import contextlib

import torch
import torch.distributed as dist


class StepGuard:
    """Ranks leave out a step together when one of them cannot do it."""

    def __init__(self):
        self.failed = False
        self.own = self.skipped = 0

    @contextlib.contextmanager
    def attempt(self):
        self.failed = False
        try:
            yield
        except OSError as err:
            self.failed = True
            self.own += 1
            print(err, flush=True)

    def any_true(self, flag):
        vote = torch.tensor([int(flag)])
        dist.all_reduce(vote, op=dist.ReduceOp.MAX)
        if vote.item():
            self.skipped += 1
        return bool(vote.item())

    def any_failed(self):
        return self.any_true(self.failed)
