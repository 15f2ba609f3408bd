# expect: DDP402
# ranks: 2 4
# culprits: any
# outcome: any
# plain: S
"""A mixture of experts, "one expert per rank"."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Experts(nn.Module):
    def __init__(self, dim, n_experts):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(n_experts))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        expert = self.experts[dist.get_rank() % len(self.experts)]  # <- culprit
        return self.out(torch.relu(expert(x)))  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Experts(8, 4), find_unused_parameters=True)  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(16, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()  # <- culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
