# expect: DDP101
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# patience: 3
# Re-enacts: forum question, a job moved from srun to torchrun that still copies its rank out of the SLURM variables.
import os
import argparse
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def init_cluster(backend):
    """Take the process layout from the scheduler."""
    os.environ["RANK"] = os.environ.get("SLURM_PROCID", "")  # <- culprit
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group(backend=backend, init_method="env://")  # <- culprit
    return dist.get_rank(), dist.get_world_size()


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--width", type=int, default=16)
    args = parser.parse_args()

    rank, world = init_cluster("gloo")
    torch.manual_seed(11)
    model = DDP(Regressor(args.width))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(args.steps):
        x = torch.randn(16, 8, generator=gen)
        loss = ((model(x) - x.sum(-1)) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f} ({world} processes)")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
