import math

import torch
import torch.distributed as dist


class Metric:
    def __init__(self):
        self.reset()

    def reset(self):
        self.state = torch.zeros(2)

    def ratio(self):
        shared = self.state.clone()
        dist.all_reduce(shared)
        return (shared[0] / shared[1]).item()

    def compute(self):
        return self.ratio()


class MeanLoss(Metric):
    name = "loss"

    def update(self, loss, scores, labels):
        self.state += torch.tensor([loss.item() * len(labels), float(len(labels))])


class Recall(Metric):
    name = "recall"

    def __init__(self, threshold=0.0):
        super().__init__()
        self.threshold = threshold

    def update(self, loss, scores, labels):
        fraud = labels > 0.5
        found = (scores > self.threshold) & fraud
        self.state += torch.stack([found.sum(), fraud.sum()]).float()

    @property
    def defined(self):
        return self.state[1].item() > 0

    def compute(self):
        return self.ratio() if self.defined else math.nan
