# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Batch norm over the whole world by a custom autograd function; ranks have batches of different sizes."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class GlobalNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps):
        stats = torch.cat([x.sum(0), x.pow(2).sum(0), x.new_tensor([x.shape[0]])])
        dist.all_reduce(stats)
        c, n = x.shape[1], stats[-1]
        mean = stats[:c] / n
        var = stats[c:2 * c] / n - mean.pow(2)
        inv = (var + eps).rsqrt()
        xhat = (x - mean) * inv
        ctx.save_for_backward(xhat, inv, n)
        ctx.mark_non_differentiable(mean, var, n)
        return xhat, mean, var, n

    @staticmethod
    def backward(ctx, g, *_):
        xhat, inv, n = ctx.saved_tensors
        c = g.shape[1]
        sums = torch.cat([g.sum(0), (g * xhat).sum(0)])
        dist.all_reduce(sums)
        return inv * (g - sums[:c] / n - xhat * sums[c:] / n), None


class WorldBatchNorm(nn.BatchNorm1d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        xhat, mean, var, n = GlobalNorm.apply(x, self.eps)
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * n / (n - 1), self.momentum)
        return xhat * self.weight + self.bias


def make(norm):
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(5, 12), norm(12), nn.ReLU(), nn.Linear(12, 7), norm(7), nn.ReLU(),
                         nn.Linear(7, 1)).double()


def sizes(step, world):
    return [3 + (step + r) % 3 for r in range(world)]


def full_batch(step, world):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(sum(sizes(step, world)), 5, generator=g, dtype=torch.double)
    return x, x.prod(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(make(WorldBatchNorm), broadcast_buffers=False)      # statistics are equal by construction
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(6):
        x, y = full_batch(step, world)
        counts = sizes(step, world)
        mine_x, mine_y = x.split(counts)[rank], y.split(counts)[rank]
        out = model(mine_x)
        loss = (out - mine_y).pow(2).sum() * world / len(x)          # DDP divides by world again
        opt.zero_grad()
        loss.backward()
        opt.step()

    reference = make(nn.BatchNorm1d)
    ref_opt = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    for step in range(6):
        x, y = full_batch(step, world)
        ref_opt.zero_grad()
        (reference(x) - y).pow(2).mean().backward()
        ref_opt.step()
    for (name, a), b in zip(model.module.state_dict().items(), reference.state_dict().values()):
        assert torch.allclose(a, b, atol=1e-8), name
    if rank == 0:
        print("matches batch norm over the whole batch")
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
