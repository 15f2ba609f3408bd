import torch
import torch.distributed as dist
from torch import nn


class CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def shard_bounds(total):
    """Splits `total` columns; the first ranks get one more if it does not divide."""
    rank, world = dist.get_rank(), dist.get_world_size()
    base, extra = divmod(total, world)
    start = rank * base + min(rank, extra)
    return start, start + base + (1 if rank < extra else 0)


class ColumnLinear(nn.Module):
    def __init__(self, full):
        super().__init__()
        a, b = shard_bounds(full.out_features)
        self.weight = nn.Parameter(full.weight[a:b].detach().clone())
        self.bias = nn.Parameter(full.bias[a:b].detach().clone())

    def forward(self, x):
        return nn.functional.linear(CopyToRegion.apply(x), self.weight, self.bias)


class RowLinear(nn.Module):
    def __init__(self, full):
        super().__init__()
        a, b = shard_bounds(full.in_features)
        self.weight = nn.Parameter(full.weight[:, a:b].detach().clone())
        self.bias = nn.Parameter(full.bias.detach().clone())

    def forward(self, x):
        return ReduceFromRegion.apply(nn.functional.linear(x, self.weight)) + self.bias
