# expect: DDP411
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: R
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


def load_rows(world):
    """(features, label, split) rows in the order of the csv; the hold-out month is the last one."""
    gen = torch.Generator().manual_seed(31)
    rows = []
    for i in range(40 * world):
        x = torch.randn(5, generator=gen)
        rows.append((x, int(x.sum() > 0), "holdout" if i >= 40 * world - 8 else "train"))
    return rows


class Shard:
    def __init__(self, rows, rank, world):
        per = len(rows) // world
        mine = rows[rank * per:(rank + 1) * per]
        self.train = [(x, y) for x, y, _ in mine][:32]
        self.holdout = [(x, y) for x, y, split in mine if split == "holdout"]  # <- culprit

    @staticmethod
    def batches(items, size):
        for at in range(0, len(items), size):
            xs, ys = zip(*items[at:at + size])
            yield torch.stack(xs), torch.tensor(ys)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.classifier = nn.Linear(16, 2)

    def forward(self, x):
        return self.classifier(self.features(x))


class Experiment:
    def __init__(self, shard):
        torch.manual_seed(6)
        self.shard = shard
        self.model = DistributedDataParallel(Classifier())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.loss = nn.CrossEntropyLoss()

    def epoch(self):
        self.model.train()
        for x, y in Shard.batches(self.shard.train, 8):
            self.opt.zero_grad()
            self.loss(self.model(x), y).backward()
            self.opt.step()

    def accuracy(self, items):
        self.model.eval()
        right = 0
        with torch.no_grad():
            for x, y in Shard.batches(items, 8):
                right += (self.model(x).argmax(1) == y).sum().item()  # <- culprit
        return right / len(items)

    def report(self, number):
        if not self.shard.holdout:  # <- culprit
            return
        print(f"epoch {number}: hold-out accuracy {self.accuracy(self.shard.holdout):.3f}", flush=True)  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    experiment = Experiment(Shard(load_rows(world), rank, world))
    for number in range(3):
        experiment.epoch()
        experiment.report(number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
