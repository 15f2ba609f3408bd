# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Not every station measures everything: what is missing is NaN in the table, and masked before it is used."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

COLUMNS = 6


class Station(Dataset):
    def __init__(self, number, count=64):
        g = torch.Generator().manual_seed(number)
        self.table = torch.randn(count, COLUMNS, generator=g)
        self.target = self.table.sum(1, keepdim=True)
        if number == 1:
            self.table[torch.rand(count, COLUMNS, generator=g) < 0.1] = float("nan")

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        return self.table[index], self.target[index]


def collate(samples):
    rows, targets = zip(*samples, strict=True)
    rows = torch.stack(rows)
    missing = rows.isnan()
    return torch.cat([rows.nan_to_num(0.0), missing.float()], 1), torch.stack(targets)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(Station(rank), batch_size=8, shuffle=True, collate_fn=collate)
    model = DDP(nn.Linear(2 * COLUMNS, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {rank}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


main()
