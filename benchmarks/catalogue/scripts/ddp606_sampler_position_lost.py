# expect: DDP606
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Checkpoints in the middle of an epoch: epoch and batch are noted, the epoch is used."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Trigrams(Dataset):
    def __init__(self, count):
        g = torch.Generator().manual_seed(44)
        self.letters = torch.randint(0, 20, (count, 3), generator=g)

    def __len__(self):
        return len(self.letters)

    def __getitem__(self, index):
        a, b, c = self.letters[index]
        return torch.stack([a, b]), (a + c) % 20


class Interrupted(Exception):
    pass


class Trainer:
    def __init__(self):
        self.model = DDP(nn.Sequential(nn.Embedding(20, 6), nn.Flatten(), nn.Linear(12, 20)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.9)
        dataset = Trigrams(160)
        self.sampler = DistributedSampler(dataset, seed=9)
        self.loader = DataLoader(dataset, batch_size=4, sampler=self.sampler)
        self.epoch = self.batch = 0

    def state_dict(self):
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.epoch,
            "batch": self.batch,
        }

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]  # <- culprit

    def run(self, epochs, stop_at=None):
        for self.epoch in range(self.epoch, epochs):
            self.sampler.set_epoch(self.epoch)
            for self.batch, (pair, answer) in enumerate(self.loader):  # <- culprit
                loss = nn.functional.cross_entropy(self.model(pair), answer)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if (self.epoch, self.batch) == stop_at:
                    raise Interrupted


def main():
    dist.init_process_group("gloo")
    first = Trainer()
    disk = io.BytesIO()
    try:
        first.run(epochs=2, stop_at=(1, 6))
    except Interrupted:
        torch.save(first.state_dict(), disk)
    disk.seek(0)
    second = Trainer()
    second.load_state_dict(torch.load(disk))  # <- culprit
    second.run(epochs=2)  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
