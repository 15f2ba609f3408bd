"""Data that look odd and are as they should be: nothing may be found."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import (
    BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler, Sampler, Subset,
    TensorDataset, random_split,
)


def regression(samples=64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(samples, 4, generator=generator), torch.randn(samples, 2, generator=generator))


class Trainer:
    def __init__(self):
        self.model = DDP(nn.Linear(4, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def __call__(self, x, y):
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(x), y).backward()
        self.optimizer.step()


def epochs(loader, train, count=3):
    for epoch in range(count):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            train(x, y)


def persistent_workers(rank):
    data = regression()
    loader = DataLoader(
        data, batch_size=4, sampler=DistributedSampler(data), num_workers=1, persistent_workers=True, drop_last=True
    )
    epochs(loader, Trainer())


def spawned_workers(rank):
    data = regression(32)
    sampler = DistributedSampler(data, drop_last=True)
    epochs(DataLoader(data, batch_size=4, sampler=sampler, num_workers=1, multiprocessing_context="spawn"), Trainer(), 1)


def evaluation_everywhere(rank):
    """Every rank evaluates all of the held-out data, sometimes in the middle of an epoch."""
    data, held_out, train = regression(), regression(16, seed=2), Trainer()
    loader, evaluation = DataLoader(data, batch_size=4, sampler=DistributedSampler(data)), DataLoader(held_out, batch_size=8)
    sampled = DataLoader(held_out, batch_size=4, sampler=DistributedSampler(held_out))
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            train(x, y)
            if step % 2:
                with torch.no_grad():
                    for part in (evaluation, sampled):
                        for x, y in part:
                            train.model.module(x)


class Stream(IterableDataset):
    def __init__(self, rank, world):
        self.rank, self.world = rank, world

    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        for number in range(64):
            x, y = torch.randn(4, generator=generator), torch.randn(2, generator=generator)
            if number % self.world == self.rank:
                yield x, y

    def __len__(self):
        raise TypeError("a stream has no length")


def sharded_by_hand(rank):
    train = Trainer()
    for epoch in range(2):
        for x, y in DataLoader(Stream(rank, dist.get_world_size()), batch_size=4, num_workers=1):
            train(x, y)
    data = regression()
    mine = Subset(data, range(rank, 64, dist.get_world_size()))
    for x, y in DataLoader(mine, batch_size=4, shuffle=True):
        train(x, y)


class Uncounted(Dataset):
    """Its length is asked for by nobody but its own sampler."""

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(4, generator=generator), torch.randn(2, generator=generator)

    def __len__(self):
        raise TypeError("nobody has counted them")


class EveryNth(Sampler):
    def __init__(self, rank, world):
        self.rank, self.world = rank, world

    def __iter__(self):
        return iter(range(self.rank, 64, self.world))


def samplers_of_their_own(rank):
    train, world = Trainer(), dist.get_world_size()
    for loader in (
        DataLoader(Uncounted(), batch_size=4, sampler=EveryNth(rank, world)),
        DataLoader(Uncounted(), batch_sampler=BatchSampler(EveryNth(rank, world), 4, False)),
        DataLoader(Uncounted(), batch_sampler=[[rank, rank + world], [rank + 2 * world]]),
    ):
        for x, y in loader:
            train(x, y)


def every_rank_draws(rank):
    """Each rank draws from all of the data, in an order of its own."""
    data, train = regression(), Trainer()
    torch.manual_seed(100 + rank)
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        train(x, y)
    sampler = RandomSampler(data, replacement=True, num_samples=32, generator=torch.Generator().manual_seed(rank))
    for x, y in DataLoader(data, batch_size=8, sampler=sampler):
        train(x, y)


def slices_of_a_batch(rank):
    """Every rank loads the whole batch and takes its part."""
    data, train, world = regression(), Trainer(), dist.get_world_size()
    for x, y in DataLoader(data, batch_size=16):
        train(x[rank::world], y[rank::world])


def random_numbers_for_data(rank):
    """A benchmark: every rank has made up numbers of its own."""
    torch.manual_seed(rank)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 2))
    epochs(DataLoader(data, batch_size=4, sampler=DistributedSampler(data)), Trainer(), 2)


def split_alike(rank):
    train = Trainer()
    parts = random_split(regression(100), [0.8, 0.2], generator=torch.Generator().manual_seed(3))
    loader = DataLoader(parts[0], batch_size=4, sampler=DistributedSampler(parts[0]))
    epochs(loader, train, 2)
    for x, y in DataLoader(parts[1]):
        train.model.module(x)


def uneven_under_join(rank):
    train = Trainer()
    data = regression(48 + 8 * rank, seed=rank)
    with Join([train.model]):
        for x, y in DataLoader(data, batch_size=8):
            train(x, y)


def uneven_but_stopped_together(rank):
    train = Trainer()
    loader = DataLoader(regression(48 + 8 * rank, seed=rank), batch_size=8)
    for step, (x, y) in enumerate(loader):
        train(x, y)
        if step == 3:
            break


def two_loaders(rank):
    one, other, train = regression(), regression(seed=2), Trainer()
    loaders = [DataLoader(data, batch_size=4, sampler=DistributedSampler(data)) for data in (one, other)]
    for epoch in range(2):
        for loader in loaders:
            loader.sampler.set_epoch(epoch)
        for (x, y), (u, v) in zip(*loaders):
            train(x, y)
            train(u, v)


def resumed(rank):
    """A first look at one batch, then the epochs from the fifth on."""
    data = regression()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    x, y = next(iter(loader))
    train = Trainer()
    for epoch in range(5, 7):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            train(x, y)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
    print("done", flush=True)
