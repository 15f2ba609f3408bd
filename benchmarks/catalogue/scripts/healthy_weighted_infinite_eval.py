# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
"""Imbalanced classes: endless weighted sampling for training (a fixed number of steps, no epochs), and an
evaluation without padding: the ranks have unequal numbers of batches and only meet once, at its end."""
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, Subset


class Blobs(Dataset):
    def __init__(self, n, seed, train=False):
        g = torch.Generator().manual_seed(seed)
        self.y = (torch.rand(n, generator=g) < 0.1).long()
        self.x = torch.randn(n, 3, generator=g) + 2.0 * self.y[:, None]
        self.train = train

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.train:
            x = x + 0.05 * torch.randn(3)             # augmentation: the rank's own random numbers
        return i, x, self.y[i]


class EndlessWeighted(Sampler):
    """All the ranks draw the same long row of indices from one seed, each takes every world-th."""

    def __init__(self, weights, rank, world, seed=0):
        self.w, self.rank, self.world = weights, rank, world
        self.g = torch.Generator().manual_seed(seed)

    def __iter__(self):
        while True:
            row = torch.multinomial(self.w, 64 * self.world, replacement=True, generator=self.g)
            yield from row[self.rank::self.world].tolist()


@torch.no_grad()
def evaluate(model, data, rank, world):
    """No padding, no duplicates. The model has no buffers, so its forward does not communicate here."""
    per = [len(data) * (r + 1) // world + (5 * (r + 1) if r + 1 < world else 0) for r in range(world)]
    lo, hi = (per[rank - 1] if rank else 0), per[rank]
    model.eval()
    tally = torch.zeros(4, dtype=torch.int64)         # right, seen, batches, positives found
    for i, x, y in DataLoader(Subset(data, range(lo, hi)), batch_size=7):
        guess = model(x).argmax(1)
        tally += torch.tensor([(guess == y).sum(), len(y), 1, ((guess == 1) & (y == 1)).sum()])
    model.train()
    own = int(tally[2])
    dist.all_reduce(tally)
    return own, tally.tolist()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    train, test = Blobs(400, 1, train=True), Blobs(141, 2)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 2)))
    torch.manual_seed(1234 + rank)
    weights = torch.where(train.y == 1, 9.0, 1.0)
    stream = iter(DataLoader(train, batch_sampler=BatchSampler(EndlessWeighted(weights, rank, world), 16, False)))
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(1, 61):
        _, x, y = next(stream)
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
        if step % 20 == 0:
            own, (right, seen, batches, found) = evaluate(model, test, rank, world)
            assert seen == len(test)
            print(f"[{rank}] step {step}: {own} of {batches} batches mine, {right}/{seen} right", flush=True)
    assert right / seen > 0.8 and found > 0.7 * int(test.y.sum())
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
