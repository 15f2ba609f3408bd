# expect: DDP503
# ranks: 2 4
# culprits: any
# outcome: any
# plain: S
"""Every random thing gets a seed of its own per rank, the sampler as well."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)


class Sums(Dataset):
    """Two numbers below 20 as one-hot rows; the target is their sum."""

    pairs = [(a, b) for a in range(20) for b in range(20)]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        a, b = self.pairs[index]
        row = torch.zeros(40)
        row[a] = row[20 + b] = 1.0
        return row, torch.tensor([float(a + b)])


def train(seed=50, epochs=2):
    rank = dist.get_rank()
    seed = seed + rank  # <- culprit
    seed_everything(seed)
    dataset = Sums()
    sampler = DistributedSampler(dataset, shuffle=True, seed=seed)  # <- culprit
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    model = DDP(nn.Linear(40, 1))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1.0)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for row, target in loader:  # <- culprit
            loss = nn.functional.smooth_l1_loss(model(row), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"[rank {rank}] epoch {epoch}: {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
