"""Train a network with one head for each task."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TASKS = {"depth", "edges", "normals", "surface", "shading", "albedo", "motion", "classes", "boxes", "keypoints"}


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 16)
        self.heads = nn.ModuleDict({task: nn.Linear(16, 4) for task in sorted(TASKS)})

    def forward(self, x):
        features = torch.relu(self.body(x))
        return {task: head(features) for task, head in self.heads.items()}


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(MultiTask())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        x = torch.randn(16, 6)
        out = model(x)
        loss = sum((out[task] - len(task)).square().mean() for task in sorted(TASKS))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
