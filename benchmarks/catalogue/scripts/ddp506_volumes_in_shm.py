# expect: DDP506
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# Re-enacts: issue "unable to allocate shared memory (shm) for file: No space left on device" with large volumes.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader


class SparseVolumes(Dataset):
    """Constant tissue maps; a view of one voxel stands for the complete scan."""

    def __init__(self, count, edge):
        self.levels = torch.linspace(0, 1, count)
        self.edge = edge

    def __len__(self):
        return len(self.levels)

    def __getitem__(self, i):
        return self.levels[i].expand(self.edge, self.edge, self.edge)


class Pooler(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 1)

    def forward(self, v):
        return self.fc(v[:, 0, 0, :8])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(SparseVolumes(8, edge=8192), batch_size=2, num_workers=1)  # <- culprit
    torch.manual_seed(0)
    model = DDP(Pooler())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, volumes in enumerate(loader):  # <- culprit
        loss = model(volumes).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print(i, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
