# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Two teams train two models of their own in sub-groups, one with many more steps; they meet at the end."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = {"teacher": 60, "student": 7}


def teams(world):
    half = world // 2
    members = {"teacher": list(range(half)), "student": list(range(half, world))}
    return {name: (ranks, dist.new_group(ranks)) for name, ranks in members.items()}


def train(name, group, rank):
    width = 32 if name == "teacher" else 8
    model = DDP(nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 2)), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    for _ in range(STEPS[name]):
        x = torch.randn(8, 10, generator=g)
        loss = nn.functional.cross_entropy(model(x), (x.mean(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, group=group)
    return mean.item() / dist.get_world_size(group)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for name, (ranks, group) in teams(world).items():
        if rank in ranks:
            loss = train(name, group, rank)
            print(f"rank {rank} ({name}): {loss:.3f}", flush=True)
    everybody = torch.tensor([loss])
    dist.all_reduce(everybody, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()


main()
