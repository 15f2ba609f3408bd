# expect: DDP108
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

FEEDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]


class Plan:
    """Who reads which feed. The first process coordinates and reads none."""

    def __init__(self, world):
        readers = max(1, world - 1)
        self.owner = {name: world - readers + i % readers for i, name in enumerate(FEEDS)}

    def feeds(self, rank):
        return [name for name, who in self.owner.items() if who == rank]

    @property
    def readers(self):
        return sorted(set(self.owner.values()))


class Offsets:
    """Readers agree among themselves how far they are."""

    def __init__(self, plan, rank):
        self.group = None
        if plan.feeds(rank):  # <- culprit
            self.group = dist.new_group(plan.readers)  # <- culprit
        self.value = torch.zeros(1)

    def agree(self, count):
        if self.group is not None:
            self.value.fill_(count)
            dist.all_reduce(self.value, op=dist.ReduceOp.MIN, group=self.group)
        return int(self.value.item())


def stream(names, size=8):
    for k in range(4):
        g = torch.Generator().manual_seed(k + 10 * len(names))
        x = torch.randn(size, 5, generator=g)
        yield x, x.mean(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    plan = Plan(world)
    offsets = Offsets(plan, rank)  # <- culprit
    metrics = dist.new_group(group_desc="metrics")  # <- culprit
    torch.manual_seed(0)
    model = DDP(nn.Linear(5, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(stream(plan.feeds(rank))):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        at = offsets.agree(step)
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=metrics)
        if rank == world - 1:
            print(f"step {step} offset {at} loss {mean.item() / world:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
