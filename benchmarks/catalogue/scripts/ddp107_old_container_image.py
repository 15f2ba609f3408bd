# expect: DDP107
# ranks: 2
# culprits: [n-1]
# outcome: any
# plain: S
# Re-enacts: forum question, one machine of the pool still runs last year's container image (imitated in load_image()).
import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

IMAGES = {"2025-06": None, "2023-11": "2.1.2+cpu"}


def image_of(rank, world):
    # the last machine was not re-imaged
    return "2023-11" if rank == world - 1 else "2025-06"  # <- culprit


def load_image(name):
    """Stands in for the container: the torch that this machine's image brings along."""
    version = IMAGES[name]
    if version is not None:
        torch.__version__ = torch.torch_version.TorchVersion(version)  # <- culprit
        torch.version.__version__ = version  # <- culprit


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    load_image(image_of(rank, world))  # <- culprit
    dist.init_process_group("gloo")  # <- culprit
    print(f"rank {rank}: torch {torch.__version__}")
    torch.manual_seed(7)
    model = DDP(nn.Sequential(nn.Linear(12, 12), nn.SiLU(), nn.Linear(12, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    gen = torch.Generator().manual_seed(rank)
    for _ in range(6):
        x = torch.randn(10, 12, generator=gen)
        loss = (model(x).squeeze(1) - x.mean(1)).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
