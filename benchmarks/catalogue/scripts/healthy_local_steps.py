# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""Post-local SGD: after a warm-up every rank trains alone and the models are averaged now and then."""
import time

import torch
import torch.distributed as dist
import torch.distributed.algorithms.model_averaging.averagers as averagers
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

WARMUP, PERIOD, STEPS = 4, 4, 17


def halves(world):
    """Even and odd ranks; both groups are made by everybody."""
    return [dist.new_group(list(range(k, world, 2))) for k in range(2)]


def tune_temperature(group, rank, logits, y):
    """The even half tries a finer grid than the odd one, so it talks more often."""
    grid = torch.linspace(0.5, 2.0, 12 if rank % 2 == 0 else 5)
    best = (float("inf"), 1.0)
    for t in grid:
        nll = nn.functional.cross_entropy(logits / t, y).detach()
        dist.all_reduce(nll, group=group)
        best = min(best, (nll.item(), t.item()))
    return best[1]


def stream(rank, n):
    g = torch.Generator().manual_seed(300 + rank)
    for _ in range(n):
        x = torch.randn(12, 6, generator=g)
        yield x, (x[:, :3].sum(1) > x[:, 3:].sum(1)).long()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = halves(world)
    alone, _ = dist.new_subgroups(group_size=1)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)))
    state = PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=WARMUP)
    model.register_comm_hook(state, post_localSGD_hook)
    opt = PostLocalSGDOptimizer(
        optim=torch.optim.SGD(model.parameters(), lr=0.1),
        averager=averagers.PeriodicModelAverager(period=PERIOD, warmup_steps=WARMUP))
    for step, (x, y) in enumerate(stream(rank, STEPS)):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        if rank == 0 and step % PERIOD == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    averagers.utils.average_parameters(model.parameters(), dist.group.WORLD)
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    all_of_them = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(all_of_them, flat)
    assert all(torch.allclose(a, flat) for a in all_of_them)
    x, y = next(stream(rank, 1))
    with torch.no_grad():
        t = tune_temperature(groups[rank % 2], rank, model.module(x), y)
    print(f"rank {rank} temperature {t:.2f}", flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
