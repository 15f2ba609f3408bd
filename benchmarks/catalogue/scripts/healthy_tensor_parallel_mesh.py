# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""A mesh of data parallel times tensor parallel: weights are split within a tensor group, so they differ there by design."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Mesh:
    def __init__(self, tp):
        rank, world = dist.get_rank(), dist.get_world_size()
        self.tp_rank, self.dp_rank = rank % tp, rank // tp
        self.tp_size, self.dp_size = tp, world // tp
        for d in range(self.dp_size):
            ranks = [d * tp + t for t in range(tp)]
            group = dist.new_group(ranks)
            if d == self.dp_rank:
                self.tp_group, self.tp_first = group, ranks[0]
        for t in range(tp):
            group = dist.new_group([d * tp + t for d in range(self.dp_size)])
            if t == self.tp_rank:
                self.dp_group = group


class SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        out = x.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class SplitMLP(nn.Module):
    """Columns of the first layer and rows of the second one are split over the tensor group."""

    def __init__(self, mesh, dim=6, hidden=16):
        super().__init__()
        part = hidden // mesh.tp_size
        self.group = mesh.tp_group
        self.up = nn.Linear(dim, part)
        self.down = nn.Linear(part, 1, bias=False)

    def forward(self, x):
        return SumForward.apply(self.down(torch.relu(self.up(x))), self.group).squeeze(-1)


def batches(mesh, count, size=8):
    """Data depends on the data parallel index only: a tensor group works on one batch together."""
    gen = torch.Generator().manual_seed(700 + mesh.dp_rank)
    for _ in range(count):
        x = torch.randn(size, 6, generator=gen)
        yield x, x[:, 0] * x[:, 1]


def global_norm(model, mesh):
    square = sum(p.grad.pow(2).sum() for p in model.parameters())
    dist.all_reduce(square, group=mesh.tp_group)
    return square.sqrt()


def main():
    dist.init_process_group("gloo")
    mesh = Mesh(tp=2)
    torch.manual_seed(60 + mesh.tp_rank)
    model = DDP(SplitMLP(mesh), process_group=mesh.dp_group)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(batches(mesh, 6)):
        loss = (model(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        norm = global_norm(model, mesh)
        scale = (1.0 / norm).clamp(max=1.0)
        for p in model.parameters():
            p.grad.mul_(scale)
        opt.step()
        if mesh.dp_rank == 0:
            time.sleep(0.05)  # a slower node
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f} norm {norm.item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
