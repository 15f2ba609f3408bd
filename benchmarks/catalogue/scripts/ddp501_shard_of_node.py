# expect: DDP501
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Place:
    world: int
    node: int
    per_node: int
    local: int

    @property
    def first(self):
        """Global rank of the first process of this node."""
        return self.node * self.per_node

    @classmethod
    def from_env(cls):
        e = os.environ
        return cls(world=int(e["WORLD_SIZE"]), node=int(e.get("GROUP_RANK", 0)),
                   per_node=int(e.get("LOCAL_WORLD_SIZE", 1)), local=int(e.get("LOCAL_RANK", 0)))


class Sentences(Dataset):
    def __init__(self, n=96, length=10, vocab=50):
        g = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(0, vocab, (n, length + 1), generator=g)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        row = self.tokens[i]
        return row[:-1], row[1:]


class TinyLM(nn.Module):
    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.head(h)


def shard_index(place):
    # the nodes are numbered by the agent, the processes of a node are consecutive
    return place.first  # <- culprit


def build_loader(place, batch=8):
    data = Sentences()
    sampler = DistributedSampler(data, num_replicas=place.world, rank=shard_index(place), shuffle=True)  # <- culprit
    return DataLoader(data, batch_size=batch, sampler=sampler), sampler


def fit(model, loader, sampler, epochs):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    crit = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        seen = torch.zeros(2)
        for x, y in loader:
            opt.zero_grad(set_to_none=True)
            loss = crit(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            opt.step()
            seen += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(seen)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {seen[0] / seen[1]:.4f}", flush=True)


def main():
    place = Place.from_env()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(TinyLM())
    loader, sampler = build_loader(place)
    fit(model, loader, sampler, epochs=2)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


main()
