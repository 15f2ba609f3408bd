# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: hierarchical averaging: all processes make all groups in one order, each uses its own; leaders speak among themselves.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def build_groups(world, size):
    nodes = [list(range(i, min(world, i + size))) for i in range(0, world, size)]
    node_groups = [dist.new_group(r) for r in nodes]
    leaders = [r[0] for r in nodes]
    return nodes, node_groups, leaders, dist.new_group(leaders)


def hierarchical_mean(value, nodes, node_groups, leaders, leader_group):
    rank = dist.get_rank()
    mine = next(i for i, r in enumerate(nodes) if rank in r)
    t = torch.tensor([value, 1.0])
    dist.reduce(t, dst=nodes[mine][0], group=node_groups[mine])
    if rank in leaders:
        dist.all_reduce(t, group=leader_group)
    dist.broadcast(t, src=nodes[mine][0], group=node_groups[mine])
    return (t[0] / t[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    topology = build_groups(world, max(1, world // 2))
    torch.manual_seed(0)
    model = DDP(nn.Linear(7, 7))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(rank)
    for step in range(5):
        x = torch.randn(6, 7, generator=gen)
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        mean = hierarchical_mean(loss.item(), *topology)
        if rank == 0:
            print(step, round(mean, 4))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
