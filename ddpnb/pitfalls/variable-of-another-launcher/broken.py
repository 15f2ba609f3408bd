"""Train on the device of this process; written for mpirun, started by torchrun."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def device():
    local_rank = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
    return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")


def main():
    here = device()
    dist.init_process_group("nccl" if here.type == "cuda" else "gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(8, 1).to(here))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 8, device=here)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
