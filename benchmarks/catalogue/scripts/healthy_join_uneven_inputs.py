# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Ranks with unequal numbers of batches, under the join context that is made for it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def my_rows(rank):
    g = torch.Generator().manual_seed(rank)
    x = torch.randn(40 + 16 * rank, 6, generator=g)
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(my_rows(rank), batch_size=8)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        steps = 0
        with Join([model]):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                steps += 1
        print(f"epoch {epoch}, rank {rank}: {steps} steps", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
