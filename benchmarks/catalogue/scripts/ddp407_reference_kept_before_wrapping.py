# expect: DDP407
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
"""The loss function was given the network before it was wrapped."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Distillation:
    """Student against teacher."""

    def __init__(self, student, teacher, temperature=2.0):
        self.student, self.teacher, self.t = student, teacher, temperature

    def __call__(self, x):
        with torch.no_grad():
            wanted = F.softmax(self.teacher(x) / self.t, dim=1)
        got = F.log_softmax(self.student(x) / self.t, dim=1)  # <- culprit
        return F.kl_div(got, wanted, reduction="batchmean")


def mlp(hidden):
    return nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 4))


def train(steps):
    torch.manual_seed(0)
    teacher, student = mlp(64), mlp(8)
    criterion = Distillation(student, teacher)  # <- culprit
    student = DDP(student)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.2)
    student.train()
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(steps):
        loss = criterion(torch.randn(16, 6))  # <- culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(12)
    dist.destroy_process_group()
