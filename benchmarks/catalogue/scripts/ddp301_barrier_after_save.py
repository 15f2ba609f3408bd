# expect: DDP301
# also: DDP302
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
"""Save every third step; the barrier makes sure that the file is complete before anybody goes on."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Checkpointer:
    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.saved = {}

    def __call__(self, step):
        if step % self.every or dist.get_rank() != 0:  # <- culprit
            return
        file = io.BytesIO()
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, file)
        self.saved[step] = file.tell()
        dist.barrier()  # <- culprit


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.conv(x).relu().mean(2))


def main():
    dist.init_process_group("gloo")
    net = Net()
    model = DDP(net)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    checkpoint = Checkpointer(net, opt, every=3)
    for step in range(1, 10):
        x, y = torch.randn(6, 2, 9), torch.randint(0, 2, (6,))
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()  # <- culprit
        opt.step()
        checkpoint(step)
    print(dist.get_rank(), checkpoint.saved)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
