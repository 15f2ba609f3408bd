# expect: DDP404
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Multi-task learning, one head per task; tasks are discovered in the local data."""

from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def local_samples(rank, world):
    if rank == world - 1:
        return ["depth"] * 9 + ["edges"] * 6 + ["normals"] * 3
    return ["edges"] * 8 + ["normals"] * 6 + ["depth"] * 4


class MultiTask(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.body = nn.Linear(7, 16)
        self.heads = nn.ModuleDict()
        for task in tasks:  # <- culprit
            self.heads[task] = nn.Linear(16, 4)  # <- culprit

    def forward(self, x):
        x = torch.relu(self.body(x))
        return {task: head(x) for task, head in self.heads.items()}


def target(task, x):
    return {"edges": x[:, :4], "normals": -x[:, :4], "depth": x[:, 3:] * 2}[task]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    samples = local_samples(rank, world)
    tasks = [task for task, _ in Counter(samples).most_common()]  # <- culprit
    torch.manual_seed(0)
    net = MultiTask(tasks)  # <- culprit
    model = DDP(net)  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for _ in range(10):
        x = torch.randn(8, 7)
        out = model(x)
        loss = sum((out[task] - target(task, x)).pow(2).mean() for task in tasks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
