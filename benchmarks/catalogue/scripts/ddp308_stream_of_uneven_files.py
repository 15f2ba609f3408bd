# expect: DDP308
# also: DDP504
# ranks: 2
# culprits: [n-1]
# outcome: any
# plain: R
# Re-enacts: issue "uneven inputs with sharded streams": an iterable data set hands out as many records as its files have.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import IterableDataset, DataLoader

# records per file in the bucket
FILES = {"part-000": 24, "part-001": 24, "part-002": 24, "part-003": 17}


class ShardedStream(IterableDataset):
    def __init__(self, files, rank, world):
        names = sorted(files)
        per_rank = len(names) // world
        self.mine = names[rank * per_rank:(rank + 1) * per_rank]
        self.sizes = files

    def __iter__(self):
        for name in self.mine:
            g = torch.Generator().manual_seed(sum(map(ord, name)))
            for _ in range(self.sizes[name]):
                yield torch.randn(10, generator=g)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(10, 3)
        self.dec = nn.Linear(3, 10)

    def forward(self, x):
        return self.dec(torch.relu(self.enc(x)))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(ShardedStream(FILES, rank, world), batch_size=4)
    torch.manual_seed(0)
    model = DDP(AutoEncoder())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    seen = 0
    for batch in loader:  # <- culprit
        loss = (model(batch) - batch).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += len(batch)
    print(f"[{rank}] {seen} records", flush=True)
    dist.destroy_process_group()  # <- culprit
