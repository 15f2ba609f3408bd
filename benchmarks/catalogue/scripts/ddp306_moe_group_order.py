# expect: DDP306
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
"""Mixture of experts: the dense part is averaged over all ranks, experts within pairs of ranks."""
import torch
import torch.distributed as dist
from torch import nn


class Mesh:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.dense = dist.new_group(list(range(self.world)))
        self.expert = None
        for first in range(0, self.world, 2):
            members = [first, first + 1]
            group = dist.new_group(members)
            if self.rank in members:
                self.expert = group


class MoE(nn.Module):
    def __init__(self, dim=6, experts=2):
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))
        with torch.no_grad():
            self.router.weight.zero_()
            self.router.weight[0, 0], self.router.weight[1, 0] = 1.0, -1.0

    def forward(self, x):
        gate = self.router(x).softmax(-1)
        choice = gate.argmax(-1)
        self.load = torch.bincount(choice, minlength=len(self.experts))
        out = torch.stack([e(x) for e in self.experts], dim=1)
        return (gate.unsqueeze(-1) * out).sum(1)


class GradientSync:
    """Sends the bucket that matters most first, so that it overlaps with the rest."""

    def __init__(self, mesh, model):
        self.mesh, self.model = mesh, model

    def buckets(self):
        dense = ("dense", self.mesh.dense, list(self.model.router.parameters()))
        expert = ("expert", self.mesh.expert, list(self.model.experts.parameters()))
        return [dense, expert]

    def priority(self, name):
        balance = self.model.load.float() / self.model.load.sum()
        return balance[1].item() if name == "expert" else 0.5

    def __call__(self):
        ordered = sorted(self.buckets(), key=lambda b: -self.priority(b[0]))  # <- culprit
        for _, group, params in ordered:
            flat = torch.cat([p.grad.flatten() for p in params])
            dist.all_reduce(flat, group=group)  # <- culprit
            flat /= dist.get_world_size(group)
            at = 0
            for p in params:
                p.grad.copy_(flat[at:at + p.numel()].view_as(p))
                at += p.numel()


def tokens_for(rank, world):
    gen = torch.Generator().manual_seed(60 + rank)
    x = torch.randn(32, 6, generator=gen)
    bias = -1.5 if rank == world - 1 else 1.5  # documents of another language sit in the last file
    x[:, 0] += bias
    return x


def main():
    dist.init_process_group("gloo")
    mesh = Mesh()
    torch.manual_seed(0)
    model = MoE()
    sync = GradientSync(mesh, model)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    x = tokens_for(mesh.rank, mesh.world)
    for step, part in enumerate(x.split(8)):
        loss = ((model(part) - part) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        sync()  # <- culprit
        opt.step()
        print(f"[{mesh.rank}] step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
