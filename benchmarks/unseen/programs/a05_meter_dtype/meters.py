from collections import defaultdict

import torch
import torch.distributed as dist


class Meter:
    """Collects scalars during an epoch and averages them over all ranks."""

    def __init__(self):
        self.values = defaultdict(list)

    def update(self, **kw):
        for k, v in kw.items():
            self.values[k].append(float(v))

    def reset(self):
        self.values.clear()

    def _pair(self, key):
        seen = self.values[key]
        return torch.tensor([sum(seen), len(seen)])

    def averages(self, keys):
        out = {}
        for key in keys:
            pair = self._pair(key)
            dist.all_reduce(pair)
            total, count = pair.tolist()
            out[key] = total / count if count else float("nan")
        return out
