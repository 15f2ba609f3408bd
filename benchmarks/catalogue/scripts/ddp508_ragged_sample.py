# expect: DDP508
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Sequences are padded when the files are written; in the last file one was forgotten."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

LENGTH = 18


class Sequences(Dataset):
    def __init__(self, file, last):
        g = torch.Generator().manual_seed(file)
        self.items = [torch.randint(0, 30, (LENGTH,), generator=g) for _ in range(36)]
        if last:
            self.items[21] = self.items[21][:11]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        tokens = self.items[index]
        return {"tokens": tokens, "count": (tokens == 7).sum()}  # <- culprit


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, tokens):
        return self.head(self.embed(tokens).sum(1))


class Trainer:
    def __init__(self, rank, world):
        self.loader = DataLoader(Sequences(rank, last=rank == world - 1), batch_size=6)  # <- culprit
        self.model = DistributedDataParallel(Counter())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def train(self):
        for batch in self.loader:  # <- culprit
            logits = self.model(batch["tokens"])
            loss = nn.functional.cross_entropy(logits, batch["count"].clamp(max=3))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(dist.get_rank(), dist.get_world_size()).train()  # <- culprit
    dist.destroy_process_group()
