"""Pre-training on spot instances: the job is interrupted once and goes on from its snapshot."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from resumable import ResumableSampler
from storage import Frames, loader_options, snapshot_path

BATCH, RECLAIMED_AT = 4, 9


class Reclaimed(Exception):
    """The provider takes the machines back."""


class Job:
    def __init__(self, rank, world):
        torch.manual_seed(3)
        self.rank, self.steps = rank, 0
        frames = Frames()
        self.sampler = ResumableSampler(len(frames), rank, world)
        self.loader = DataLoader(frames, batch_size=BATCH, sampler=self.sampler, drop_last=True, **loader_options(rank))
        self.model = DDP(nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 3)))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def save(self):
        torch.save({"model": self.model.module.state_dict(), "opt": self.opt.state_dict(), "steps": self.steps,
                    "sampler": self.sampler.state_dict()}, snapshot_path(self.rank))

    def restore(self):
        state = torch.load(snapshot_path(self.rank))
        self.model.module.load_state_dict(state["model"])
        self.opt.load_state_dict(state["opt"])
        self.sampler.load_state_dict(state["sampler"])
        self.steps = state["steps"]

    def run(self, epochs, stop_at=None):
        while self.sampler.epoch < epochs:
            for x, y in self.loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.steps += 1
                if self.steps == stop_at:
                    self.save()
                    raise Reclaimed(self.steps)
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if self.rank == 0:
                print(f"epoch done at step {self.steps}: {mean / dist.get_world_size():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    try:
        Job(rank, world).run(epochs=2, stop_at=RECLAIMED_AT)
    except Reclaimed as e:
        print(f"rank {rank}: reclaimed after {e} steps", flush=True)
    job = Job(rank, world)
    job.restore()
    job.run(epochs=2)
    os.remove(snapshot_path(rank))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
