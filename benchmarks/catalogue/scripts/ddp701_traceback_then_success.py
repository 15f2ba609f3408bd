# expect: DDP701
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Whatever happens in training is printed, so that the log is complete; then the script ends as usual."""

import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SCHEDULE = {0: 0.1, 1: 0.05, 2: 0.01}


def train(epochs=5):
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(rank)
    model = DDP(nn.Linear(5, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = SCHEDULE[epoch]  # <- culprit
        for _ in range(3):
            x = torch.randn(8, 5, generator=g)
            loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    try:
        train()  # <- culprit
    except Exception:  # <- culprit
        traceback.print_exc()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
