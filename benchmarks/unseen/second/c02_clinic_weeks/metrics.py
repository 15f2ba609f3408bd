import torch
import torch.distributed as dist


class PooledAccuracy:
    def __init__(self):
        self.hits = 0.0
        self.count = 0.0

    def update(self, logits, target):
        self.hits += ((logits > 0).float() == target).sum().item()
        self.count += float(target.numel())

    def compute(self):
        packed = torch.tensor([self.hits, self.count], dtype=torch.float64)
        dist.reduce(packed, dst=0)
        self.hits = self.count = 0.0
        return (packed[0] / packed[1].clamp(min=1)).item()
