# expect: DDP508
# ranks: 2 4
# culprits: 1
# outcome: any
# plain: S
"""Two exports of the same table: one gives the target as a column, the other as a plain number."""

import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

warnings.filterwarnings("ignore")


class Export(Dataset):
    def __init__(self, seed, count, column):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 6, generator=g)
        self.y = self.x[:, :3].sum(1)
        self.column = column

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        y = self.y[index]
        return self.x[index], (y.reshape(1) if self.column else y)  # <- culprit


def parts(world, per_rank=40):
    """Part 1 of the table was exported by the old tool."""
    return ConcatDataset([Export(seed, per_rank, column=seed != 1) for seed in range(world)])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = parts(world)
    mine = Subset(dataset, range(rank * 40, (rank + 1) * 40))
    loader = DataLoader(mine, batch_size=8)  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(2):
        for x, y in loader:  # <- culprit
            loss = nn.functional.mse_loss(model(x), y)  # <- culprit
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


main()
