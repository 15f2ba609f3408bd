# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""A resume that puts back everything: weights, optimizer, scheduler, epoch, batch and each rank's random state."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Job:
    def __init__(self, folder):
        self.folder, self.rank = Path(folder), dist.get_rank()
        x = torch.randn(128, 6, generator=torch.Generator().manual_seed(0))
        dataset = TensorDataset(x, x.sum(1, keepdim=True))
        self.sampler = DistributedSampler(dataset, seed=2)
        self.loader = DataLoader(dataset, batch_size=8, sampler=self.sampler)
        self.model = DDP(nn.Sequential(nn.Linear(6, 24), nn.Dropout(0.2), nn.ReLU(), nn.Linear(24, 1)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)
        self.epoch, self.skip = 0, 0

    def save(self, batch):
        torch.save(torch.get_rng_state(), self.folder / f"rng{self.rank}.pt")
        if self.rank == 0:
            state = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scheduler")}
            torch.save(state | {"epoch": self.epoch, "batch": batch + 1}, self.folder / "job.pt")
        dist.barrier()

    def resume(self):
        state = torch.load(self.folder / "job.pt")
        for name in ("model", "optimizer", "scheduler"):
            getattr(self, name).load_state_dict(state[name])
        self.epoch, self.skip = state["epoch"], state["batch"]
        torch.set_rng_state(torch.load(self.folder / f"rng{self.rank}.pt"))

    def run(self, epochs, stop=None):
        for self.epoch in range(self.epoch, epochs):
            self.sampler.set_epoch(self.epoch)
            for batch, (x, y) in enumerate(self.loader):
                if batch < self.skip:
                    continue
                loss = nn.functional.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if (self.epoch, batch) == stop:
                    return self.save(batch)
            self.skip = 0
            self.scheduler.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    torch.manual_seed(dist.get_rank())
    Job(folder[0]).run(epochs=3, stop=(1, 1))
    again = Job(folder[0])
    again.resume()
    print(f"rank {again.rank}: {again.run(epochs=3):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
