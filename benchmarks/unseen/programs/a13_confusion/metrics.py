from collections import Counter

import torch
import torch.distributed as dist

from safety import best_effort

CLASSES = ("cat", "dog", "bird", "fish")


class ConfusionTracker:
    def __init__(self):
        self.pairs = Counter()

    def add(self, predicted, actual):
        for p, a in zip(predicted.tolist(), actual):
            self.pairs[CLASSES[p], a] += 1

    def matrix(self):
        out = torch.zeros(len(CLASSES), len(CLASSES))
        for (p, a), n in self.pairs.items():
            out[CLASSES.index(p), CLASSES.index(a)] = n
        return out

    @best_effort(default=dict)
    def summarize(self):
        m = self.matrix()
        dist.all_reduce(m)
        recall = m.diagonal() / m.sum(0).clamp_min(1)
        return dict(zip(CLASSES, recall.tolist()))
