import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

from features import build_table, item_statistics

HERE = os.path.dirname(os.path.abspath(__file__))
N_ITEMS = 64


class TwoTower(nn.Module):
    def __init__(self, n_users, n_items, dim=16):
        super().__init__()
        self.user = nn.Embedding(n_users, dim)
        self.item = nn.Embedding(n_items, dim)
        self.bias = nn.Linear(2, 1)

    def forward(self, user, item, stats):
        dot = (self.user(user) * self.item(item)).sum(-1)
        return dot + self.bias(stats[item]).squeeze(-1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    table = build_table(part=rank, n_items=N_ITEMS)
    scratch = os.path.join(HERE, "scratch", f"part{rank}")
    stats = item_statistics(scratch, table, N_ITEMS)

    model = DDP(TwoTower(200, N_ITEMS))
    optim = torch.optim.Adam(model.parameters(), lr=5e-3)
    loader = DataLoader(TensorDataset(*table), batch_size=64, shuffle=True)
    loss_fn = nn.BCEWithLogitsLoss()

    for epoch in range(4):
        total = torch.zeros(1)
        for user, item, click in loader:
            loss = loss_fn(model(user, item, stats), click)
            optim.zero_grad()
            loss.backward()
            optim.step()
            total += loss.detach()
        dist.reduce(total, dst=0)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() / world / len(loader):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
