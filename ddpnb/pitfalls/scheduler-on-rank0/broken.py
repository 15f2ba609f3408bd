"""Train with a learning rate that a scheduler lowers; progress is logged on rank 0."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import StepLR


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
    for epoch in range(4):
        for _ in range(3):
            x = torch.randn(16, 8)
            loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            scheduler.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}, next rate {scheduler.get_last_lr()[0]}")
    dist.destroy_process_group()


main()
