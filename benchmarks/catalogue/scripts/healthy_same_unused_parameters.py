# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""find_unused_parameters=True; all ranks take the same branch, chosen by the number of the step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Alternating(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 12)
        self.branches = nn.ModuleList(nn.Linear(12, 3) for _ in range(3))

    def forward(self, x, index):
        return self.branches[index](torch.relu(self.stem(x)))


def train(steps=12):
    torch.manual_seed(0)
    model = DDP(Alternating(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for step in range(steps):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        loss = nn.functional.cross_entropy(model(x, step % 3), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.barrier()
    dist.destroy_process_group()
