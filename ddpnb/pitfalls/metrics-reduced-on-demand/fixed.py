"""Train and report loss and accuracy; a metric is averaged over the ranks when it is asked for."""

import torch
import torch.distributed as dist
from torch import nn


class Metrics:
    def __init__(self, logits, labels):
        self.logits, self.labels = logits.detach(), labels

    def loss(self):
        value = nn.functional.cross_entropy(self.logits, self.labels)
        dist.all_reduce(value)
        return value.item() / dist.get_world_size()

    def accuracy(self):
        value = (self.logits.argmax(1) == self.labels).float().mean()
        dist.all_reduce(value)
        return value.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(6):
        x = torch.randn(16, 8)
        labels = (x.sum(1) > 0).long()
        logits = model(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, labels).backward()
        optimizer.step()
        metrics = Metrics(logits, labels)
        history.append((metrics.loss(), metrics.accuracy()))
        if rank == 0:
            print(f"step {step}: accuracy {history[-1][1]:.3f}, loss {history[-1][0]:.3f}")
    dist.destroy_process_group()


main()
