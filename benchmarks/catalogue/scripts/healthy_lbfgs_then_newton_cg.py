# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Full-batch fitting: L-BFGS with a reduced closure, then Newton steps by conjugate gradients on Hessian-vector
products.  Data are split by rank; everything that steers an iteration is reduced first."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mean_(t):
    dist.all_reduce(t)
    return t.div_(dist.get_world_size())


def shard(rank, world):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, generator=g, dtype=torch.double)
    y = torch.sin(x.sum(1, keepdim=True)) + 0.01 * torch.randn(64, 1, generator=g, dtype=torch.double)
    return x[rank::world], y[rank::world], x, y


def objective(net, x, y):
    return nn.functional.mse_loss(net(x), y) + 1e-2 * sum(p.pow(2).sum() for p in net.parameters())


def fit_lbfgs(ddp, x, y):
    opt = torch.optim.LBFGS(ddp.parameters(), lr=1, max_iter=6, history_size=5, line_search_fn="strong_wolfe")
    calls = 0

    def closure():
        nonlocal calls
        calls += 1
        opt.zero_grad()
        loss = objective(ddp, x, y)
        loss.backward()
        return mean_(loss.detach().clone())               # the line search must see the same loss everywhere

    for _ in range(3):
        opt.step(closure)
    return calls


def newton_step(net, x, y, damping=0.1, rounds=10):
    params = list(net.parameters())
    loss = objective(net, x, y)
    grads = torch.autograd.grad(loss, params, create_graph=True)
    flat = torch.cat([g.flatten() for g in grads])

    def hvp(v):
        out = torch.autograd.grad(flat @ v, params, retain_graph=True)
        return mean_(torch.cat([o.flatten() for o in out])) + damping * v

    b = mean_(flat.detach().clone())
    start = b.norm()
    sol, res = torch.zeros_like(b), b.clone()
    d, rr = res.clone(), res @ res
    for _ in range(rounds):
        if rr.sqrt() < 1e-10:
            break
        hd = hvp(d)
        if d @ hd <= 0:                                    # negative curvature: same decision on all ranks
            break
        a = rr / (d @ hd)
        sol += a * d
        res -= a * hd
        new = res @ res
        d, rr = res + new / rr * d, new
    with torch.no_grad():
        at = 0
        for p in params:
            p.sub_(sol[at:at + p.numel()].view_as(p))
            at += p.numel()
    return start.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y, all_x, all_y = shard(rank, world)
    torch.manual_seed(14)
    ddp = DDP(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double())
    first = objective(ddp.module, all_x, all_y).item()
    calls = fit_lbfgs(ddp, x, y)
    middle = objective(ddp.module, all_x, all_y).item()
    norms = [newton_step(ddp.module, x, y) for _ in range(4)]
    final = objective(ddp.module, all_x, all_y).item()
    counts = [None] * world
    dist.all_gather_object(counts, (calls, final))
    assert len(set(counts)) == 1 and middle < first and norms[-1] < norms[0], (counts, norms)
    if rank == 0:
        print(f"{first:.4f} -> {middle:.4f} ({calls} evaluations) -> {final:.5f}, gradient {norms[-1]:.1e}")
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
