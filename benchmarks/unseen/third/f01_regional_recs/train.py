"""Matrix factorisation on regional interaction logs, one region per worker."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from catalog import N_ITEMS, N_USERS, REGIONS, RegionShard, warm_start_items


class Factoriser(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.users = nn.Embedding(N_USERS, dim)
        self.items = nn.Embedding(N_ITEMS, dim)
        self.head = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, u, i):
        return self.head(torch.cat([self.users(u), self.items(i)], dim=-1)).squeeze(-1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)

    shard = RegionShard(REGIONS[rank % len(REGIONS)])
    model = DDP(Factoriser())
    moved = warm_start_items(model.module.items, shard.popularity)
    print(f"[{shard.region}] {len(shard.items)} interactions, {moved} items warm-started", flush=True)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    for epoch in range(3):
        total = torch.zeros(2)
        for users, items, ratings in shard.batches(64, epoch):
            loss = nn.functional.mse_loss(model(users, items), ratings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: mse {total[0] / total[1]:.4f}", flush=True)

    if rank == 0 and os.environ.get("EXPORT_DIR"):
        torch.save(model.module.state_dict(), os.path.join(os.environ["EXPORT_DIR"], "mf.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
