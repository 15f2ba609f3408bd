# expect: DDP507
# ranks: 2
# culprits: [n-1]
# outcome: hang
# plain: T
# Re-enacts: issue on vectorised environments, a loader's worker waits for an answer of its simulator that never arrives.
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import IterableDataset, DataLoader


class Simulator:
    """The other end of the line; goes silent after `answers` requests."""

    def __init__(self, answers):
        self.here, self.there = socket.socketpair()
        self.left = answers

    def step(self):
        self.here.send(b"step")
        if self.left > 0:
            self.left -= 1
            self.there.send(b"%016d" % self.left)
        return int(self.here.recv(16))  # <- culprit


class Experience(IterableDataset):
    def __init__(self, steps, answers):
        self.steps, self.answers = steps, answers

    def __iter__(self):
        sim = Simulator(self.answers)
        for _ in range(self.steps):
            seed = sim.step()  # <- culprit
            g = torch.Generator().manual_seed(seed)
            yield torch.randn(5, generator=g)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    answers = 17 if rank == world - 1 else 100
    loader = DataLoader(Experience(32, answers), batch_size=4, num_workers=1, prefetch_factor=2)
    torch.manual_seed(0)
    model = DDP(nn.Linear(5, 5))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, obs in enumerate(loader):  # <- culprit
        loss = (model(obs) - obs).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"[{rank}] update {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
