"""Train with batch normalisation; rank 0 evaluates after every epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    accuracy = (model(x).argmax(1) == y).float().mean()
    model.train()
    return accuracy.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for _ in range(4):
            x = torch.randn(16, 8)
            loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            x = torch.randn(100, 8)
            print(f"epoch {epoch}: accuracy {evaluate(model, x, x[:, :3].argmax(1)):.2f}")
    dist.destroy_process_group()


main()
