# expect: DDP603
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""All ranks write the checkpoint, to one name, at the same time; who was last is seen at the next start."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, path):
        self.path, self.rank = path, dist.get_rank()
        self.g = torch.Generator().manual_seed(self.rank)
        self.model = DDP(nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 30)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def train(self, steps):
        for _ in range(steps):
            x = torch.randn(8, 30, generator=self.g)
            loss = nn.functional.mse_loss(self.model(x), x.roll(1, 1))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def save(self):
        state = {
            "rank": self.rank,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.g.get_state(),
        }
        torch.save(state, self.path)  # <- culprit
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    shared = [os.path.join(tempfile.mkdtemp(), "last.pt")]
    dist.broadcast_object_list(shared, src=0)
    trainer = Trainer(shared[0])
    for _ in range(3):
        trainer.train(steps=4)
        trainer.save()  # <- culprit
    dist.barrier()
    if trainer.rank == 0:
        print("done", os.path.getsize(shared[0]), "bytes", flush=True)
        os.remove(shared[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
