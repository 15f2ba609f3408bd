# expect: DDP601
# also: DDP405
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""Fine-tuning from a checkpoint, which the first rank alone reads."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))


def pretrained():
    """Write the checkpoint of an earlier job, for this example."""
    fd, path = tempfile.mkstemp(suffix=".pt")
    os.close(fd)
    torch.manual_seed(99)
    torch.save({"model": build().state_dict(), "step": 1000}, path)
    return path


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = pretrained()
    torch.manual_seed(rank)
    model = DDP(build())
    if rank == 0:  # <- culprit
        checkpoint = torch.load(path)  # <- culprit
        model.module.load_state_dict(checkpoint["model"])  # <- culprit
        print("resumed from step", checkpoint["step"], flush=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(10):
        x = torch.randn(8, 12)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    os.remove(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
