# expect: DDP308
# also: DDP302 DDP303
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: A
"""Training from a stream of records; the last file of the set is shorter than the others."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Records(IterableDataset):
    def __init__(self, index, lines):
        self.index, self.lines = index, lines

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.index)
        for _ in range(self.lines):
            yield torch.rand(5, generator=gen)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(5, 2)
        self.up = nn.Linear(2, 5)

    def forward(self, x):
        return self.up(torch.tanh(self.down(x)))


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    lines = 40 if rank < size - 1 else 23
    loader = DataLoader(Records(rank, lines), batch_size=5)
    model = DDP(AutoEncoder())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    for x in loader:  # <- culprit
        loss = nn.functional.mse_loss(model(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        steps += 1
    done = torch.tensor([steps])
    dist.all_reduce(done)  # <- culprit
    if rank == 0:
        print("steps in all:", done.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
