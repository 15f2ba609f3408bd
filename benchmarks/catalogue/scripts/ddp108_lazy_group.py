# expect: DDP108
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
import functools
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Topology:
    """Groups of this job, created when somebody asks for them."""

    def __init__(self, per_node):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.per_node = per_node

    @property
    def leaders(self):
        return list(range(0, self.world, self.per_node))

    @property
    def is_leader(self):
        return self.rank in self.leaders

    @functools.cached_property
    def leader_group(self):
        return dist.new_group(self.leaders)  # <- culprit

    @functools.cached_property
    def slow_group(self):
        """Everybody, with patience: validation takes long on the big set."""
        return dist.new_group(timeout=timedelta(hours=4))  # <- culprit


class Meter:
    def __init__(self, topo):
        self.topo, self.total, self.count = topo, 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    def flush(self, step):
        if self.topo.is_leader:  # <- culprit
            stats = torch.tensor([self.total, float(self.count)])
            dist.all_reduce(stats, group=self.topo.leader_group)  # <- culprit
            if self.topo.rank == 0:
                print(f"step {step}: loss {stats[0] / stats[1]:.4f} (leaders only)")
        self.total, self.count = 0.0, 0


@torch.no_grad()
def validate(net, rank):
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(900 + rank))
    return nn.functional.smooth_l1_loss(net(x), x.flip(1)).item()


def main():
    dist.init_process_group("gloo")
    topo = Topology(per_node=int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())))
    torch.manual_seed(topo.rank)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    meter = Meter(topo)
    for step in range(1, 9):
        x = torch.randn(5, 6)
        loss = nn.functional.smooth_l1_loss(model(x), x.flip(1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        meter.update(loss.item(), len(x))
        if step % 4 == 0:
            meter.flush(step)
    score = torch.tensor(validate(model.module, topo.rank))
    dist.all_reduce(score, group=topo.slow_group)  # <- culprit
    if topo.rank == 0:
        print("validation", score.item() / topo.world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
