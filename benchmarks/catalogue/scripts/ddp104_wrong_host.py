# expect: DDP104
# also: DDP101 DDP110
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Federated averaging between a few sites."""

import dataclasses
import os

import torch
import torch.distributed as dist


@dataclasses.dataclass
class Site:
    name: str
    coordinator: str


def site_for(rank, size):
    # the last site still has the address of the coordinator before it moved
    if rank == size - 1:
        return Site("leuven", "192.0.2.17")
    return Site(f"site-{rank}", os.environ["MASTER_ADDR"])


def local_round(weights, steps=3):
    weights = weights.clone().requires_grad_()
    for _ in range(steps):
        x = torch.randn(20, 6)
        loss = ((x @ weights) - x[:, 0]).pow(2).mean()
        (grad,) = torch.autograd.grad(loss, weights)
        weights = (weights - 0.05 * grad).detach().requires_grad_()
    return weights.detach()


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    site = site_for(rank, size)
    os.environ["MASTER_ADDR"] = site.coordinator  # <- culprit
    dist.init_process_group("gloo", rank=rank, world_size=size)  # <- culprit
    weights = torch.zeros(6)
    for _ in range(3):
        weights = local_round(weights)
        dist.all_reduce(weights)
        weights /= size
    print(site.name, weights.norm().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
