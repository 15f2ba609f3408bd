from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

from metrics import TaskWeights

TASKS = ("text", "image", "audio")
SCALE = {"text": 1.0, "image": 5.0, "audio": 0.2}


def mixture(rank: int, steps: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    g = torch.Generator().manual_seed(rank)
    order = list(TASKS) if rank != 1 else ["image", "text", "audio"]
    for step in range(steps):
        task = order[step % len(order)]
        x = torch.randn(16, 10, generator=g)
        yield task, x, SCALE[task] * x[:, : len(task)].sum(1, keepdim=True)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.out = nn.Linear(32, len(TASKS))

    def forward(self, x, task):
        return self.out(self.trunk(x))[:, TASKS.index(task)].unsqueeze(1)


def main(epochs: int = 3, steps: int = 9) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(MultiTask())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    tracker = TaskWeights(TASKS)
    weights = dict.fromkeys(TASKS, 1.0)
    for epoch in range(epochs):
        for task, x, y in mixture(rank, steps):
            loss = nn.functional.mse_loss(model(x, task), y)
            opt.zero_grad()
            (weights[task] * loss).backward()
            opt.step()
            tracker.update(task, loss.detach())
        weights = tracker.compute()
        if rank == 0:
            print(epoch, {k: round(v, 3) for k, v in weights.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
