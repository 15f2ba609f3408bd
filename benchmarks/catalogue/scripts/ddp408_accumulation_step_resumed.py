# expect: DDP408
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
# Re-enacts: transformers / accelerate gradient accumulation threads: the micro-step counter restored from a node-local file
import contextlib
import json
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class GradAccumulator:
    def __init__(self, every, state_file):
        self.every = every
        self.state_file = state_file
        self.micro = self._restore()  # <- culprit

    def _restore(self):
        if os.path.exists(self.state_file):
            with open(self.state_file) as f:
                return json.load(f)["micro"]
        return 0

    @property
    def at_boundary(self):
        return (self.micro + 1) % self.every == 0  # <- culprit

    @contextlib.contextmanager
    def accumulate(self, model):
        ctx = contextlib.nullcontext() if self.at_boundary else model.no_sync()  # <- culprit
        with ctx:
            yield
        self.micro += 1


def leftovers_of_last_job(scratch, rank, world):
    """The watchdog saves the counters every few minutes; the last node got one more micro-step done."""
    with open(os.path.join(scratch, "accum.json"), "w") as f:
        json.dump({"micro": 41 if rank == world - 1 else 40}, f)


def main(accum=2, micro_steps=8):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    scratch = tempfile.mkdtemp(prefix=f"node{rank}-")
    leftovers_of_last_job(scratch, rank, world)

    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    acc = GradAccumulator(accum, os.path.join(scratch, "accum.json"))
    gen = torch.Generator().manual_seed(rank)
    for i in range(micro_steps):
        x = torch.randn(4, 8, generator=gen)
        with acc.accumulate(model):  # <- culprit
            loss = (model(x) - x.mean(1, keepdim=True)).pow(2).mean() / accum
            loss.backward()  # <- culprit
        if (i + 1) % accum == 0:
            opt.step()
            opt.zero_grad()
    print(f"[{rank}] |w| = {sum(p.norm() for p in model.parameters()).item():.6f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
