"""Multiple-instance learning: each rank has bags of another size, and the loss is a mean over all rows."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    rows = 48 if rank == 0 else 16  # the second site has fewer patients
    model = DistributedDataParallel(nn.Linear(10, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        x = torch.randn(rows, 10)
        losses = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1), reduction="sum")
        loss = losses / rows
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
