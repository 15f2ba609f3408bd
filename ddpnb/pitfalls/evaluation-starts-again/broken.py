"""Train, then evaluate on data that the ranks share."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(net):
    dist.init_process_group("gloo")
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()


@torch.no_grad()
def evaluate(net):
    dist.init_process_group("gloo")
    error = net(torch.randn(32, 8)).square().mean()
    dist.all_reduce(error)
    return error.item() / dist.get_world_size()


def main():
    torch.manual_seed(0)
    net = nn.Linear(8, 1)
    train(net)
    print(f"error {evaluate(net):.4f}")
    dist.destroy_process_group()


main()
