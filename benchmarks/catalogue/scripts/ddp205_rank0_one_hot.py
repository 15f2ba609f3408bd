# expect: DDP205
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
"""Rank 0 keeps a confusion histogram of the predictions while it trains."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CLASSES = 5


class ConfusionLog:
    """Counts pairs (target, prediction) in one flat histogram."""

    def __init__(self, classes, bins_per_class):
        self.counts = torch.zeros(classes * bins_per_class)  # <- culprit

    def add(self, target, prediction):
        flat = target * CLASSES + prediction
        self.counts += torch.bincount(flat, minlength=len(self.counts))


def run():
    torch.manual_seed(11)
    model = DDP(nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, CLASSES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    log = None
    for step in range(8):
        x, y = torch.randn(6, 10), torch.randint(0, CLASSES, (6,))
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 3 and dist.get_rank() == 0:
            log = ConfusionLog(CLASSES, CLASSES**20)  # <- culprit
        if log is not None:
            log.add(y, out.argmax(1))


dist.init_process_group("gloo")
run()
dist.destroy_process_group()
