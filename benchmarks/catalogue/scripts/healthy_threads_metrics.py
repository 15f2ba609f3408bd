# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
"""Three helper threads per rank: prefetch (no communication), heartbeat (prints), metrics (collectives on a
process group that only this thread uses)."""
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 20


class Prefetcher(threading.Thread):
    def __init__(self, rank, depth=3):
        super().__init__(name="prefetch", daemon=True)
        self.rank, self.q = rank, queue.Queue(depth)

    def run(self):
        g = torch.Generator().manual_seed(10 + self.rank)
        for _ in range(STEPS):
            x = torch.randn(16, 8, generator=g)
            self.q.put((x, x.abs().mean(1, keepdim=True)))
        self.q.put(None)

    def __iter__(self):
        while (item := self.q.get()) is not None:
            yield item


class Heartbeat(threading.Thread):
    def __init__(self, rank, every=0.5):
        super().__init__(name="heartbeat", daemon=True)
        self.rank, self.every, self.quit, self.step = rank, every, threading.Event(), 0

    def run(self):
        while not self.quit.wait(self.every):
            print(f"[{self.rank}] alive, step {self.step}", flush=True)


class Metrics(threading.Thread):
    """One all_reduce per item of the queue; every rank puts the same number of items in."""
    def __init__(self, group):
        super().__init__(name="metrics")
        self.group, self.q, self.world_mean = group, queue.Queue(), []

    def run(self):
        world = dist.get_world_size(self.group)
        while True:
            value = self.q.get()
            if value is None:
                return
            t = torch.tensor([value], dtype=torch.float64)
            dist.all_reduce(t, group=self.group)
            self.world_mean.append(t.item() / world)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    side = dist.new_group(backend="gloo")              # all ranks, for the metrics thread alone
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    feed, beat, metrics = Prefetcher(rank), Heartbeat(rank), Metrics(side)
    for t in (feed, beat, metrics):
        t.start()
    for step, (x, y) in enumerate(feed):
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        beat.step = step
        metrics.q.put(loss.item())
        time.sleep(0.01 * (rank + 1))
    metrics.q.put(None)
    metrics.join()
    beat.quit.set()
    beat.join()
    feed.join()
    assert len(metrics.world_mean) == STEPS
    assert metrics.world_mean[-1] < metrics.world_mean[0]
    check = torch.tensor(metrics.world_mean)
    top = check.clone()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    assert torch.equal(check, top)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
