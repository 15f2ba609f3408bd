# expect: DDP606
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""A job that was preempted after two epochs goes on; the epoch is in the checkpoint, and stays there."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def spirals(count=96):
    g = torch.Generator().manual_seed(31)
    t = torch.rand(count, generator=g) * 6
    label = torch.arange(count) % 2
    angle = t + 3.14 * label
    return TensorDataset(torch.stack([t * angle.cos(), t * angle.sin()], 1), label)


class Job:
    def __init__(self, folder):
        self.path = os.path.join(folder, "job.pt")
        dataset = spirals()
        self.sampler = DistributedSampler(dataset, shuffle=True, seed=1)
        self.loader = DataLoader(dataset, batch_size=8, sampler=self.sampler)
        self.model = DDP(nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def save(self, epoch):
        if dist.get_rank() == 0:
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": epoch}
            torch.save(state, self.path)
        dist.barrier()

    def resume(self):
        checkpoint = torch.load(self.path)  # <- culprit
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])

    def train(self, epochs, preempted_after=None):
        for epoch in range(epochs):  # <- culprit
            self.sampler.set_epoch(epoch)  # <- culprit
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            self.save(epoch)
            if epoch + 1 == preempted_after:
                return


def main():
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)

    Job(folder[0]).train(epochs=4, preempted_after=2)

    again = Job(folder[0])  # the scheduler starts the job again
    again.resume()  # <- culprit
    again.train(epochs=4)  # <- culprit
    print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
