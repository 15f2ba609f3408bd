"""Something is wrong with the data, and PyTorch says nothing."""
import multiprocessing
import random
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset, random_split


def regression(samples=64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(samples, 4, generator=generator), torch.randn(samples, 2, generator=generator))


def trainer():
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(x, y):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    return train


def no_sampler(rank):
    train = trainer()
    for x, y in DataLoader(regression(), batch_size=8):  # culprit: no_sampler
        train(x, y)


def seeded_alike(rank):
    train = trainer()
    for x, y in DataLoader(regression(), batch_size=8, shuffle=True):  # culprit: seeded_alike
        train(x, y)


def first_shard_for_all(rank):
    data, train = regression(), trainer()
    sampler = DistributedSampler(data, num_replicas=dist.get_world_size(), rank=0)  # culprit: first_shard_for_all
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        train(x, y)


def epoch_not_set(rank):
    data, train = regression(), trainer()
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    for epoch in range(3):
        for x, y in loader:  # culprit: epoch_not_set
            train(x, y)


def seed_of_rank(rank):
    data, train = regression(), trainer()
    sampler = DistributedSampler(data, seed=rank)  # culprit: seed_of_rank
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            train(x, y)


class Files(Dataset):
    def __init__(self, names):
        self.samples = [(name, number % 2) for number, name in enumerate(names)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        name, label = self.samples[index]
        return torch.full((4,), float(len(name))), torch.full((2,), float(label))


def files_unsorted(rank):
    names = [f"/data/train/{number}.png" for number in range(64)]
    random.Random(rank).shuffle(names)
    data, train = Files(names), trainer()
    for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):  # culprit: files_unsorted
        train(x, y)


def split_without_seed(rank):
    train = trainer()
    torch.manual_seed(rank)
    part, held_out = random_split(regression(400), [0.8, 0.2])
    for x, y in DataLoader(part, batch_size=32, sampler=DistributedSampler(part)):  # culprit: split_without_seed
        train(x, y)


def uneven(rank):
    train = trainer()
    data = regression(64 if rank != 1 else 48, seed=rank)
    for x, y in DataLoader(data, batch_size=8):  # culprit: uneven
        train(x, y)
    print("out of the loop", flush=True)
    dist.barrier()  # waiting: uneven


LOCK = threading.Lock()


class Locked(Files):
    def __getitem__(self, index):
        if dist.get_rank() == 1 and index > 16:
            LOCK.acquire()  # culprit: worker_waits
        return super().__getitem__(index)


def worker_waits(rank):
    """The lock was held when the workers were forked: nobody will let it go in them."""
    train = trainer()
    data = Locked([str(number) for number in range(64)])
    LOCK.acquire()
    for x, y in DataLoader(data, batch_size=4, num_workers=2):
        train(x, y)


def serve(pipe, rank):
    for step in range(5):
        pipe.recv()
        if rank == 2 and step == 3:
            threading.Event().wait()  # culprit: environment_waits
        pipe.send(step)


def environment_waits(rank):
    pipe, other = multiprocessing.Pipe()
    multiprocessing.Process(target=serve, args=(other, rank), daemon=True).start()
    for step in range(5):
        pipe.send("step")
        pipe.recv()
        dist.all_reduce(torch.ones(4))  # waiting: environment_waits


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
