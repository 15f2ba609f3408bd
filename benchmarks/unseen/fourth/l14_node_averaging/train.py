"""Two-level averaging: often inside a node, seldom between the heads of the nodes."""
import torch
import torch.distributed as dist
import torch.nn as nn

PER_NODE, DIM, ROUNDS = 2, 8, 4


class Topology:
    def __init__(self, rank, world):
        members = [list(range(s, min(s + PER_NODE, world))) for s in range(0, world, PER_NODE)]
        self.node = [i for i, m in enumerate(members) if rank in m][0]
        self.members = members[self.node]
        self.head = self.members[0]
        self.heads = [m[0] for m in members]
        self.node_group = None
        for i, ranks in enumerate(members):
            group = dist.new_group(ranks)
            if i == self.node:
                self.node_group = group
        self.head_group = dist.new_group(self.heads)


def mean_inside(params, topo):
    for p in params:
        dist.all_reduce(p.data, group=topo.node_group)
        p.data /= len(topo.members)


def mean_between(params, topo, rank):
    if rank == topo.head:
        for p in params:
            dist.all_reduce(p.data, group=topo.head_group)
            p.data /= len(topo.heads)
    for p in params:
        dist.broadcast(p.data, src=topo.head, group=topo.node_group)


def local_steps(topo, round_):
    """A node with fewer ranks takes more steps of its own before it meets the others."""
    return 2 + round_ % 2 + 3 * topo.node + (PER_NODE - len(topo.members))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    topo = Topology(rank, world)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(DIM, 16), nn.Tanh(), nn.Linear(16, 1))
    params = list(net.parameters())
    opt = torch.optim.SGD(params, lr=0.05)
    gen = torch.Generator().manual_seed(7 + rank)
    for round_ in range(ROUNDS):
        for _ in range(local_steps(topo, round_)):
            x = torch.randn(16, DIM, generator=gen)
            loss = (net(x) - x.prod(1, keepdim=True).clamp(-1, 1)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            mean_inside(params, topo)
        mean_between(params, topo, rank)
        if rank == topo.head:
            print(f"node {topo.node} round {round_} loss {loss.item():.4f}", flush=True)
    check = torch.stack([p.detach().sum() for p in params])
    everywhere = [torch.zeros_like(check) for _ in range(world)]
    dist.all_gather(everywhere, check)
    assert all(torch.allclose(c, check, atol=1e-5) for c in everywhere)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
