# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
import gc
import json
import logging
import os
import random
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile, record_function, schedule


class SummaryWriter:
    """Event files in the manner of the well-known one; only rank 0 has one."""
    def __init__(self, path):
        self.f = open(path, "w")

    def add_scalar(self, tag, value, step):
        print(json.dumps([tag, value, step]), file=self.f, flush=True)

def bar(it, show):
    for i, x in enumerate(it, 1):
        yield x
        if show and i % 10 == 0:
            print(f"\r[{'#' * (20 * i // len(it)):20s}] {i}/{len(it)}", end="", file=sys.stderr, flush=True)


class Patience:
    """Rank 0 decides (its clock and its files count), the others follow."""
    def __init__(self, limit):
        self.best, self.bad, self.limit = float("inf"), 0, limit

    def stop(self, value):
        verdict = torch.zeros(1, dtype=torch.uint8)
        if dist.get_rank() == 0:
            self.bad = 0 if value < self.best - 1e-3 else self.bad + 1
            self.best = min(self.best, value)
            verdict += int(self.bad >= self.limit)
        dist.broadcast(verdict, src=0)
        return bool(verdict)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(format=f"[{rank}/{world}] %(message)s", level=logging.INFO if rank == 0 else logging.ERROR)
    out = tempfile.TemporaryDirectory()
    writer = SummaryWriter(os.path.join(out.name, "events.jsonl")) if rank == 0 else None
    torch.manual_seed(7)
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=0.05)
    g, rng = torch.Generator().manual_seed(70 + rank), random.Random(rank)
    xs = torch.randn(40, 16, 4, generator=g)
    patience, epochs, traces = Patience(2), 0, []
    gc.freeze()
    prof = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
                   on_trace_ready=lambda p: traces.append(len(p.key_averages())))
    with prof:
        for epoch in range(12):
            total = torch.zeros(1)
            for i, x in enumerate(bar(xs, rank == 0)):
                with record_function("train_step"):
                    opt.zero_grad()
                    loss = nn.functional.mse_loss(model(x + rng.gauss(0, 0.01)), x[:, :1])     # augmentation
                    loss.backward()
                    opt.step()
                total += loss.detach()
                if rank == world - 1 and epoch == 1 and i == 5:
                    time.sleep(0.6)                     # this host also does something else
                prof.step()
            dist.all_reduce(total)
            mean, epochs = total.item() / len(xs) / world, epochs + 1
            if writer is not None:
                writer.add_scalar("loss", mean, epoch)
            logging.info("epoch %d loss %.4f", epoch, mean)
            if patience.stop(mean):
                break
    assert len(traces) == 1 and traces[0] > 0
    everyone = [None] * world
    dist.all_gather_object(everyone, epochs)
    assert len(set(everyone)) == 1 and 2 < epochs, everyone
    if writer is not None:
        assert sum(1 for _ in open(os.path.join(out.name, "events.jsonl"))) == epochs
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()
    out.cleanup()


if __name__ == "__main__":
    main()
