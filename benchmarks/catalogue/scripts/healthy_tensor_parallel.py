# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

# Megatron's MLP by hand: column-parallel, gelu, row-parallel, on pairs of ranks; the pairs are data parallel.
TP = 2


class CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class ReduceFromGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class ParallelMLP(nn.Module):
    def __init__(self, dense, index, group):
        super().__init__()
        self.group = group
        self.norm_w = nn.Parameter(dense.norm.weight.detach().clone())
        self.w1 = nn.Parameter(dense.fc1.weight.detach().chunk(TP, 0)[index].clone())
        self.b1 = nn.Parameter(dense.fc1.bias.detach().chunk(TP, 0)[index].clone())
        self.w2 = nn.Parameter(dense.fc2.weight.detach().chunk(TP, 1)[index].clone())
        self.b2 = nn.Parameter(dense.fc2.bias.detach().clone())
        self.sharded = [self.w1, self.b1, self.w2]

    def forward(self, x):
        h = F.layer_norm(x, x.shape[-1:], self.norm_w)
        h = F.gelu(F.linear(CopyToGroup.apply(h, self.group), self.w1, self.b1))
        return x + ReduceFromGroup.apply(F.linear(h, self.w2), self.group) + self.b2


class DenseMLP(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(d, bias=False), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


def clip_(model, group, limit):
    shard = torch.stack([p.grad.pow(2).sum() for p in model.sharded]).sum()
    dist.all_reduce(shard, group=group)
    whole = sum(p.grad.pow(2).sum() for p in (model.norm_w, model.b2))
    factor = (limit / (shard + whole).sqrt()).clamp(max=1.0)
    for p in model.parameters():
        p.grad.mul_(factor)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dp = world // TP
    tp_groups = [dist.new_group(range(i * TP, i * TP + TP)) for i in range(dp)]
    dp_groups = [dist.new_group(range(i, world, TP)) for i in range(TP)]
    replica, index = divmod(rank, TP)
    tp_group, dp_group = tp_groups[replica], dp_groups[index]
    torch.manual_seed(6)
    dense = DenseMLP().double()
    model = ParallelMLP(dense, index, tp_group)
    opt, ref_opt = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, dense))
    for step in range(5):
        x = torch.randn(dp * 4, 8, generator=torch.Generator().manual_seed(step), dtype=torch.double)
        mine = x.chunk(dp)[replica]                                  # both ranks of a pair see the same rows
        opt.zero_grad()
        (model(mine) - mine.cos()).pow(2).mean().backward()
        works = [dist.all_reduce(p.grad, group=dp_group, async_op=True) for p in model.parameters()]
        for w, p in zip(works, model.parameters()):
            w.wait()
            p.grad /= dp
        clip_(model, tp_group, 0.5)
        opt.step()
        ref_opt.zero_grad()
        (dense(x) - x.cos()).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(dense.parameters(), 0.5)
        ref_opt.step()
    assert torch.allclose(model.w1, dense.fc1.weight.chunk(TP, 0)[index], atol=1e-6)
    assert torch.allclose(model.w2, dense.fc2.weight.chunk(TP, 1)[index], atol=1e-6)
    assert torch.allclose(model.b2, dense.fc2.bias, atol=1e-6)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
