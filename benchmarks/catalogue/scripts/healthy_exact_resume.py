# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Stops half-way and resumes exactly: model, optimizer, epoch and the random state of every rank."""
import os
import random
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FILE = os.path.join(tempfile.gettempdir(), f"exact-{os.environ.get('MASTER_PORT', '0')}.pt")


def random_state():
    return {"torch": torch.get_rng_state(), "python": random.getstate()}


def set_random_state(state):
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])


class Session:
    def __init__(self, seed):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(seed + self.rank)
        random.seed(seed + self.rank)
        g = torch.Generator().manual_seed(4)
        self.data = TensorDataset(torch.randn(60, 4, generator=g))
        self.sampler = DistributedSampler(self.data, drop_last=True)
        self.loader = DataLoader(self.data, batch_size=6, sampler=self.sampler, drop_last=True)
        self.model = DDP(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 4)))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.epoch, self.log = 0, []

    def save(self):
        states = [None] * self.world
        dist.all_gather_object(states, random_state())
        if self.rank == 0:
            torch.save({"model": self.model.module.state_dict(), "opt": self.opt.state_dict(),
                        "epoch": self.epoch, "rng": states}, FILE + ".tmp")
            os.replace(FILE + ".tmp", FILE)
        dist.barrier()

    def load(self):
        saved = torch.load(FILE, weights_only=False)
        self.model.module.load_state_dict(saved["model"])
        self.opt.load_state_dict(saved["opt"])
        self.epoch = saved["epoch"]
        set_random_state(saved["rng"][self.rank])
        dist.barrier()

    def train(self, until):
        while self.epoch < until:
            self.sampler.set_epoch(self.epoch)
            for (x,) in self.loader:
                noise = random.gauss(0, 0.1)
                loss = (self.model(x + noise) - x).square().mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                if random.random() < 0.6:  # a sample of the losses, another one on every rank
                    self.log.append((self.epoch, loss.item()))
            self.epoch += 1


if __name__ == "__main__":
    dist.init_process_group("gloo")
    first = Session(seed=1)
    first.train(until=2)
    first.save()
    first.train(until=4)
    second = Session(seed=77)
    second.load()
    second.train(until=4)
    a, b = (torch.cat([p.flatten() for p in s.model.parameters()]) for s in (first, second))
    logs = [None] * dist.get_world_size()
    dist.all_gather_object(logs, second.log)
    if dist.get_rank() == 0:
        print("same as without the stop:", torch.allclose(a, b), "entries per rank:", [len(entries) for entries in logs])
        os.remove(FILE)
    dist.destroy_process_group()
