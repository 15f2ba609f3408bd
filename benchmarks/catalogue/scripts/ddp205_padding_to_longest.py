# expect: DDP205
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Variable-length sequences, padded in the collate function to the length that the index file says."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Sequences(Dataset):
    def __init__(self, n_items=48):
        self.lengths = [3 + i % 5 for i in range(n_items)]
        self.lengths[n_items - 1] = 999_999_999_999_999  # milliseconds were written as picoseconds

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        length = self.lengths[index]
        return length, torch.full((min(length, 8), 6), float(index % 7))


def collate(items):
    longest = max(length for length, _ in items)
    padded = torch.zeros(len(items), longest, 6)  # <- culprit
    for row, (_, values) in enumerate(items):
        padded[row, : len(values)] = values
    return padded


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = DDP(nn.GRU(6, 10, batch_first=True))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        data = Sequences()
        self.loader = DataLoader(
            data, batch_size=4, sampler=DistributedSampler(data, shuffle=False), collate_fn=collate
        )

    def fit(self):
        for batch in self.loader:  # <- culprit
            output, _ = self.model(batch)
            loss = output[:, -1].pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main():
    dist.init_process_group("gloo")
    Trainer().fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
