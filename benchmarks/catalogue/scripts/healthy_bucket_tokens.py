# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
"""Tiny tagger on sentences of different lengths: bucketed batches, one bucket stream shared by the ranks,
loss normalised by the number of tokens in the world (not per rank)."""
import os
os.environ["OMP_NUM_THREADS"] = "1"
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler

PAD, VOCAB, TAGS = 0, 40, 5


class Sentences(Dataset):
    def __init__(self, n=97, seed=3):
        r = random.Random(seed)
        self.items = []
        for _ in range(n):
            ids = [r.randrange(1, VOCAB) for _ in range(r.randrange(3, 20))]
            self.items.append((ids, [i % TAGS for i in ids]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

class BucketBatchSampler(Sampler):
    """Sort by length inside noisy pools, cut into batches, shuffle the batches, deal them out like cards."""
    def __init__(self, lengths, batch_size, rank, world):
        self.lengths, self.bs, self.rank, self.world, self.epoch = lengths, batch_size, rank, world, 0

    def _plan(self):
        g = random.Random(1000 + self.epoch)
        noisy = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i] + g.random() * 2)
        batches = [noisy[i:i + self.bs] for i in range(0, len(noisy), self.bs)]
        g.shuffle(batches)
        return batches[: len(batches) // self.world * self.world]

    def __iter__(self):
        yield from self._plan()[self.rank::self.world]

    def __len__(self):
        return len(self._plan()) // self.world


def collate(rows):
    longest = max(len(a) for a, _ in rows)
    x = torch.full((len(rows), longest), PAD)
    y = torch.full((len(rows), longest), -100)
    for i, (a, b) in enumerate(rows):
        x[i, :len(a)] = torch.tensor(a)
        y[i, :len(b)] = torch.tensor(b)
    return x, y


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = Sentences()
    sampler = BucketBatchSampler([len(a) for a, _ in data.items], 6, rank, world)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(VOCAB, 16, padding_idx=PAD), nn.Linear(16, TAGS)))
    opt = torch.optim.Adam(model.parameters(), lr=0.05)
    history = []
    for epoch in range(3):
        sampler.epoch = epoch
        total, seen = 0.0, 0
        for x, y in loader:
            tokens = (y != -100).sum()
            everyone = tokens.clone()
            dist.all_reduce(everyone)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum")
            opt.zero_grad()
            (loss * world / everyone).backward()          # DDP divides by the world size, so give it back
            opt.step()
            total, seen = total + loss.item(), seen + int(tokens)
        stats = torch.tensor([total, seen], dtype=torch.float64)
        dist.all_reduce(stats)
        history.append((stats[0] / stats[1]).item())
        if rank == 0:
            print(f"epoch {epoch}: {history[-1]:.4f} per token, {int(stats[1])} tokens", flush=True)
    assert history[-1] < history[0]
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
