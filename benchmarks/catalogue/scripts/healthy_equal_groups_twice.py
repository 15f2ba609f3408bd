# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Gradients and metrics have a group each, with the same members; one runs in a thread beside the other."""

import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Metrics(threading.Thread):
    """Adds up counters over all ranks while training goes on, in a group of its own."""

    def __init__(self, group, rounds):
        super().__init__()
        self.group, self.rounds = group, rounds
        self.sums = []

    def run(self):
        for number in range(self.rounds):
            counter = torch.tensor([number + dist.get_rank()])
            dist.all_reduce(counter, group=self.group)
            self.sums.append(counter.item())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gradients = dist.new_group(range(world))
    metrics_group = dist.new_group(range(world))
    metrics = Metrics(metrics_group, rounds=20)
    metrics.start()
    model = DDP(nn.Linear(12, 4), process_group=gradients)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for _ in range(15):
        x = torch.randn(8, 12, generator=g)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    metrics.join()
    if rank == 0:
        print("counters", metrics.sums[:3], "...", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
