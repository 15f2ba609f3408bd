# expect: DDP109
# also: DDP507
# ranks: 2 4
# culprits: range(n)
# outcome: hang
# plain: T
"""Batches are padded to the longest sequence of all processes, in the loader's worker."""

import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Sentences(Dataset):
    def __init__(self, count=64):
        gen = torch.Generator().manual_seed(5)
        self.items = [
            torch.randint(1, 30, (int(k),), generator=gen) for k in torch.randint(3, 12, (count,), generator=gen)
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    longest = torch.tensor([max(len(s) for s in batch)])
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)  # <- culprit
    padded = torch.zeros(len(batch), int(longest), dtype=torch.long)
    for row, s in zip(padded, batch, strict=True):
        row[: len(s)] = s
    return padded


def limit_worker(worker_id):
    signal.alarm(90)  # a worker must never outlive the job


def main():
    dist.init_process_group("gloo")
    data = Sentences()
    loader = DataLoader(  # <- culprit
        data,
        batch_size=4,
        sampler=DistributedSampler(data),
        num_workers=1,
        collate_fn=collate,
        worker_init_fn=limit_worker,
        multiprocessing_context="fork",
    )
    model = DDP(nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for tokens in loader:  # <- culprit
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
