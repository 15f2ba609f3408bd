# expect: DDP606
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Training in slices: the queue gives us short slots, so a run continues where the last one stopped."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

PATH = os.path.join(tempfile.gettempdir(), f"slice-{os.environ.get('MASTER_PORT', '0')}.pt")


def dataset():
    g = torch.Generator().manual_seed(9)
    x = torch.randn(64, 6, generator=g)
    return TensorDataset(x, x.prod(1, keepdim=True))


class Run:
    def __init__(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
        self.model = DDP(net)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        data = dataset()
        self.sampler = DistributedSampler(data, shuffle=True)
        self.loader = DataLoader(data, batch_size=8, sampler=self.sampler)
        self.done = 0

    def resume(self):
        if os.path.exists(PATH):
            saved = torch.load(PATH)
            self.model.module.load_state_dict(saved["model"])
            self.opt.load_state_dict(saved["opt"])
            self.done = saved["epochs"]
        dist.barrier()

    def save(self):
        if dist.get_rank() == 0:
            torch.save({"model": self.model.module.state_dict(), "opt": self.opt.state_dict(), "epochs": self.done}, PATH)
        dist.barrier()

    def train(self, until):
        left = until - self.done
        for epoch in range(left):  # <- culprit
            self.sampler.set_epoch(epoch)  # <- culprit
            for x, y in self.loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            self.done += 1
            if dist.get_rank() == 0:
                print(f"epoch {self.done}/{until} loss {loss.item():.3f}")


def slot(until):
    run = Run()
    run.resume()  # <- culprit
    run.train(until)
    run.save()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 0 and os.path.exists(PATH):
        os.remove(PATH)
    dist.barrier()
    slot(until=2)
    slot(until=4)
    if dist.get_rank() == 0:
        os.remove(PATH)
    dist.destroy_process_group()
