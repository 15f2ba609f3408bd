import torch
import torch.distributed as dist


class PenaltyMeter:
    """Average overshoot of slow requests, over all processes."""

    def __init__(self, threshold):
        self.threshold = threshold
        self.values = []

    def add(self, seconds):
        self.values.extend(s - self.threshold for s in seconds.tolist() if s > self.threshold)

    def average(self):
        summary = torch.tensor([sum(self.values), len(self.values)])
        self.values = []
        dist.all_reduce(summary)
        return float(summary[0]) / max(float(summary[1]), 1.0)
