# expect: DDP501
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Text classifier; the sampler takes its rank from the scheduler, as the script did before it was run with torchrun."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Sentences(Dataset):
    """Sentences as rows of word numbers; the class is that of the most frequent word."""

    def __init__(self, count, length=12, vocabulary=50, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.words = torch.randint(0, vocabulary, (count, length), generator=g)
        self.label = self.words.mode(dim=1).values % 3

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return self.words[index], self.label[index]


class BagOfWords(nn.Module):
    def __init__(self, vocabulary=50, classes=3):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocabulary, 24)
        self.head = nn.Linear(24, classes)

    def forward(self, words):
        return self.head(self.embed(words))


def build_loader(dataset, batch_size):
    rank = int(os.environ.get("SLURM_PROCID", 0))  # <- culprit
    world = dist.get_world_size()
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=True, seed=3)  # <- culprit
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler), sampler  # <- culprit


if __name__ == "__main__":
    dist.init_process_group("gloo")
    loader, sampler = build_loader(Sentences(160), batch_size=8)
    model = DistributedDataParallel(BagOfWords())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for words, label in loader:  # <- culprit
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(words), label)
            loss.backward()
            optimizer.step()
    print(f"[{dist.get_rank()}] final loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()
