# expect: DDP402
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Multi-task training: one file per task, the files are dealt out to the ranks."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

FILES = ["depth_000.rec", "normals_000.rec", "depth_001.rec", "normals_001.rec"]
OUT = {"depth": 1, "normals": 3}


class TaskFile(Dataset):
    def __init__(self, name):
        self.task, _, number = name.removesuffix(".rec").partition("_")
        g = torch.Generator().manual_seed(sum(map(ord, name)))
        self.x = torch.randn(40, 9, generator=g)
        self.y = torch.randn(40, OUT[self.task], generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(9, 24), nn.ReLU())
        self.heads = nn.ModuleDict({task: nn.Linear(24, k) for task, k in OUT.items()})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = TaskFile(FILES[rank % len(FILES)])  # <- culprit
    loader = DataLoader(data, batch_size=8, shuffle=True)
    torch.manual_seed(0)
    model = DDP(MultiTask(), find_unused_parameters=True)  # <- culprit
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for x, y in loader:
            loss = F.l1_loss(model(x, data.task), y)  # <- culprit
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"[{rank}/{world}] epoch {epoch} {data.task} {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
