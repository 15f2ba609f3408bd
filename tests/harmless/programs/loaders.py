"""Data loaders and pools whose workers are forked."""

import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info


class Squares(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((4,), float(index)), torch.rand(1), random.random()


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        yield from (torch.tensor(float(number)) for number in range(worker.id, 12, worker.num_workers))


def seeded(worker):
    random.seed(worker)


def square(number):
    return number * number


def fill(tensor):
    tensor.fill_(3)


def say(*words):
    print(f"rank {dist.get_rank()}", *words, flush=True)


def train(method, **options):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    data = Squares()
    sampler = DistributedSampler(data)
    loader = DataLoader(
        data, batch_size=4, sampler=sampler, multiprocessing_context=method, worker_init_fn=seeded,
        generator=torch.Generator().manual_seed(dist.get_rank()), **options,
    )
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch, (x, y, noise) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x) * noise.float().mean(), y)
            loss.backward()
            optimizer.step()
            say(method, epoch, batch, x.sum().item(), loss.item().hex())
    say(method, [parameter.sum().item().hex() for parameter in model.parameters()])


def stream(method):
    say(method, sorted(one.item() for one in DataLoader(Stream(), num_workers=2, multiprocessing_context=method)))


def pools(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        say(method, pool.map(square, range(8)), list(pool.imap_unordered(square, [3])))
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        say(method, list(pool.map(square, range(8))))
    with ThreadPoolExecutor(4) as pool:
        say(list(pool.map(square, range(8))))


def shared_memory(method):
    tensor = torch.zeros(3).share_memory_()
    child = torch.multiprocessing.get_context(method).Process(target=fill, args=(tensor,))
    child.start()
    child.join()
    say(method, tensor.tolist(), "exit status", child.exitcode)


def main(*parts):
    dist.init_process_group("gloo")
    for part, method in parts:
        part(method)
        dist.barrier()
    time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
    dist.destroy_process_group()


def persistent(method):
    train(method, num_workers=2, persistent_workers=True)


def one_worker(method):
    train(method, num_workers=1, prefetch_factor=1, persistent_workers=True)


if __name__ == "__main__":
    main(*((part, "fork") for part in (persistent, one_worker, stream, pools, shared_memory)))
