# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Local SGD: a few steps alone, then the parameters are averaged. Two phases; each makes its own group and destroys it."""
import torch
import torch.distributed as dist
import torch.nn as nn


class Averager:
    """The ranks that take part in a phase."""

    def __enter__(self):
        self.group = dist.new_group(list(range(dist.get_world_size())))
        self.size = dist.get_world_size(self.group)
        return self

    def __exit__(self, *exc):
        dist.barrier(group=self.group)
        dist.destroy_process_group(self.group)


@torch.no_grad()
def average_(module, team):
    flat = nn.utils.parameters_to_vector(module.parameters())
    dist.all_reduce(flat, group=team.group)
    flat /= team.size
    nn.utils.vector_to_parameters(flat, module.parameters())
    for buf in module.buffers():
        if buf.is_floating_point():
            dist.all_reduce(buf, group=team.group)
            buf /= team.size


@torch.no_grad()
def spread(module, team):
    """How far the replicas are apart (largest difference to the mean)."""
    flat = nn.utils.parameters_to_vector(module.parameters())
    mean = flat.clone()
    dist.all_reduce(mean, group=team.group)
    gap = (flat - mean / team.size).abs().max()
    dist.all_reduce(gap, op=dist.ReduceOp.MAX, group=team.group)
    return gap.item()


def phase(module, lr, rounds, local_steps, seed):
    rank = dist.get_rank()
    opt = torch.optim.SGD(module.parameters(), lr=lr)
    g = torch.Generator().manual_seed(seed + rank)
    with Averager() as team:
        for p in module.parameters():
            dist.broadcast(p.data, src=0, group=team.group)
        for r in range(rounds):
            for _ in range(local_steps + (r % 2)):
                x = torch.randn(8, 5, generator=g)
                loss = nn.functional.mse_loss(module(x), x.sum(1, keepdim=True))
                opt.zero_grad()
                loss.backward()
                opt.step()
            before = spread(module, team)
            average_(module, team)
            if rank == 0:
                print(f"round {r}: loss {loss.item():.3f}, spread {before:.4f} -> averaged")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    phase(net, lr=0.05, rounds=3, local_steps=4, seed=0)
    phase(net, lr=0.01, rounds=3, local_steps=2, seed=500)
    dist.destroy_process_group()
