# expect: DDP501
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Streaming data set: text shards are split over the loader's workers."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS = [f"c4-{i:05d}.txt" for i in range(8)]
VOCAB = 32


def read_shard(name, n=12):
    g = torch.Generator().manual_seed(hash_name(name))
    for _ in range(n):
        yield torch.randint(0, VOCAB, (9,), generator=g)


def hash_name(name):
    return sum((i + 1) * ord(c) for i, c in enumerate(name))


class Stream(IterableDataset):
    def __init__(self, shards, seed=0):
        self.shards, self.seed, self.epoch = list(shards), seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = [self.shards[i] for i in torch.randperm(len(self.shards), generator=g)]
        info = get_worker_info()
        if info is not None:
            order = order[info.id :: info.num_workers]  # <- culprit
        for name in order:
            yield from read_shard(name)


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, 12)
        self.out = nn.Linear(12, VOCAB)

    def forward(self, ids):
        return self.out(self.table(ids))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stream = Stream(SHARDS)
    loader = DataLoader(stream, batch_size=8, num_workers=2)  # <- culprit
    torch.manual_seed(rank)
    model = DDP(Bigram())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    seen = 0
    for epoch in range(2):
        stream.set_epoch(epoch)
        for ids in loader:  # <- culprit
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += ids.numel()
    total = torch.tensor(seen)
    dist.all_reduce(total)
    if rank == 0:
        print(f"tokens seen by all ranks: {total.item()}, loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
