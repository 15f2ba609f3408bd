# expect: DDP504
# also: DDP308
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""Log files are dealt out to the ranks; an iterable data set reads them line by line."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

LINES = [70, 32, 34, 33, 30, 32, 30, 31]


class LogLines(IterableDataset):
    def __init__(self, rank, world):
        super().__init__()
        self.files = range(rank, len(LINES), world)  # <- culprit

    def __iter__(self):
        for number in self.files:  # <- culprit
            g = torch.Generator().manual_seed(number)
            for _ in range(LINES[number]):
                line = torch.randint(0, 26, (10,), generator=g)
                yield line, (line == 4).any().float()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(26, 8)
        self.conv = nn.Conv1d(8, 8, 3)
        self.head = nn.Linear(8, 1)

    def forward(self, line):
        signal = self.letters(line).transpose(1, 2)
        return self.head(self.conv(signal).amax(-1)).squeeze(-1)


def train_one_epoch(model, loader, optimizer):
    steps = 0
    for line, label in loader:  # <- culprit
        loss = nn.functional.binary_cross_entropy_with_logits(model(line), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    return steps


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(LogLines(rank, dist.get_world_size()), batch_size=16)  # <- culprit
    model = DDP(Classifier())
    optimizer = torch.optim.Adam(model.parameters())
    steps = train_one_epoch(model, loader, optimizer)  # <- culprit
    print(f"rank {rank}: {steps} steps", flush=True)
    dist.barrier()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
