# expect: DDP101
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Train a small classifier; written for Slurm, later started with torchrun."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def setup_from_slurm():
    # on the cluster srun provides these
    os.environ["RANK"] = os.environ.get("SLURM_PROCID", "")  # <- culprit
    os.environ["LOCAL_RANK"] = os.environ.get("SLURM_LOCALID", "")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    dist.init_process_group(backend="gloo")  # <- culprit


def main():
    setup_from_slurm()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for step in range(10):
        x, y = torch.randn(16, 20), torch.randint(0, 5, (16,))
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
