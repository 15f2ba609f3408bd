# expect: DDP103
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    # falls back to 0 for a run on a laptop
    rank = int(os.environ.get("SLURM_PROCID", "0"))  # <- culprit
    world_size = int(os.environ.get("SLURM_NTASKS", os.environ["WORLD_SIZE"]))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)  # <- culprit

    model = DistributedDataParallel(nn.Linear(12, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        loss = (model(torch.randn(4, 12)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
