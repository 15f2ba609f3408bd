# expect: DDP416
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: A
"""Gradients are compressed to half precision, where the network is said to be slow."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


def slow_network():
    return dist.get_rank() == dist.get_world_size() - 1  # <- culprit


def wrap(net):
    model = DDP(net)
    if slow_network():  # <- culprit
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)  # <- culprit
    return model


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 2)))  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(5):
        x, y = torch.randn(8, 10), torch.randint(0, 2, (8,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # <- culprit
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
