# expect: DDP402
# ranks: 2
# culprits: [n-1]
# outcome: any
# plain: S
# Re-enacts: multi-task question "find_unused_parameters=True made the error go away, but one head learns badly".
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(10, 20)
        self.heads = nn.ModuleDict({"depth": nn.Linear(20, 1), "normals": nn.Linear(20, 3)})

    def forward(self, x, task):
        return self.heads[task](torch.relu(self.trunk(x)))  # <- culprit


class TaskStream:
    """Each process reads the task whose files are on its disk."""

    def __init__(self, rank, world):
        self.task = "normals" if rank == world - 1 else "depth"  # <- culprit
        self.gen = torch.Generator().manual_seed(rank)

    def next(self):
        x = torch.randn(8, 10, generator=self.gen)
        width = 1 if self.task == "depth" else 3
        return self.task, x, x[:, :width]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stream = TaskStream(rank, world)
    torch.manual_seed(0)
    model = DDP(MultiTask(), find_unused_parameters=True)  # <- culprit
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(6):
        task, x, y = stream.next()
        loss = (model(x, task) - y).pow(2).mean()  # <- culprit
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"[{rank}] {task} {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
