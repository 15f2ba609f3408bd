import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from shadow import Shadow, write_report


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    return TensorDataset(torch.randn(n, 10, generator=g) + nn.functional.one_hot(y, 10) * 2.0, y)


class Run:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(4)
        net = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4))
        self.model = DistributedDataParallel(net)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        data = make_data(120, seed=0)
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, 10, sampler=self.sampler)
        self.shadow = Shadow(self.model.module) if self.keeps_shadow else None
        self.rows = []

    @property
    def keeps_shadow(self):
        return int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1

    def train(self):
        self.model.train()
        for x, y in self.loader:
            self.opt.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.opt.step()
            if self.shadow:
                self.shadow.update(self.model.module)

    def report(self, epoch):
        if not self.keeps_shadow:
            return None
        x, y = make_data(200, seed=1).tensors
        row = {"epoch": epoch, "shadow": self.shadow.score(x, y), "probe": self.shadow.fit_probe(x[:50], y[:50])}
        self.model.eval()
        with torch.no_grad():
            row["live"] = (self.model.module(x).argmax(1) == y).float().mean().item()
        self.rows.append(row)
        return row

    def go(self, epochs=3):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            self.train()
            if (row := self.report(epoch)) is not None:
                print(row, flush=True)


def main():
    dist.init_process_group("gloo")
    run = Run()
    run.go()
    where = [None]
    if run.keeps_shadow:
        where = [str(write_report(tempfile.mkdtemp(), run.rows))]
    dist.broadcast_object_list(where, src=run.world - 1)
    if run.rank == 0:
        with open(where[0]) as f:
            print("report:", len(f.read()), "bytes", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
