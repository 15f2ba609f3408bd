# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
import time

import torch
import torch.distributed as dist
import torch.nn as nn


class OverlappedReducer:
    """Gradients are reduced as soon as they are ready, while the backward goes on; the handles are waited for
    just before the step, last started first (the order of waiting does not matter)."""
    def __init__(self, module):
        self.pending = []
        self.world = dist.get_world_size()
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, p):
        p.grad.div_(self.world)
        self.pending.append(dist.all_reduce(p.grad, async_op=True))

    def finish(self):
        n = len(self.pending)
        while self.pending:
            self.pending.pop().wait()
        return n


class DelayedMean:
    """Mean of the loss over the ranks, looked at `lag` steps later so that nobody waits for a log line."""
    def __init__(self, lag):
        self.lag, self.queue, self.values = lag, [], []

    def push(self, loss):
        t = loss.detach().clone().reshape(1)
        self.queue.append((dist.all_reduce(t, async_op=True), t))
        if len(self.queue) > self.lag:
            self._pop()

    def _pop(self):
        work, t = self.queue.pop(0)
        work.wait()
        self.values.append(t.item() / dist.get_world_size())

    def drain(self):
        while self.queue:
            self._pop()
        return self.values


def main():
    dist.init_process_group(backend="gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))
    works = [dist.broadcast(p.data, src=0, async_op=True) for p in net.parameters()]
    [w.wait() for w in works]
    reducer, means, opt = OverlappedReducer(net), DelayedMean(lag=3), torch.optim.SGD(net.parameters(), lr=0.05)
    shard = torch.Generator().manual_seed(50 + rank)
    for step in range(15):
        x = torch.randn(16, 10, generator=shard)
        loss = (net(x) - x[:, :3].sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        means.push(loss)
        assert reducer.finish() == 6
        opt.step()
    values = means.drain()

    # two big transfers under one long computation, fetched in the other order
    a, b = torch.full((50_000,), float(rank)), torch.full((10,), rank, dtype=torch.int64)
    wa = dist.all_reduce(a, op=dist.ReduceOp.MAX, async_op=True)
    wb = dist.all_reduce(b, async_op=True)
    m = torch.rand(200, 200)
    for _ in range(20):
        m = (m @ m).softmax(1)
    wb.wait()
    assert int(b[0]) == world * (world - 1) // 2
    wa.wait()
    assert float(a.min()) == float(a.max()) == world - 1

    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    lo, hi = flat.clone(), flat.clone()
    dist.all_reduce(lo, op=dist.ReduceOp.MIN)
    dist.all_reduce(hi, op=dist.ReduceOp.MAX)
    assert torch.equal(lo, hi) and values[-1] < values[0]
    if rank == 0:
        print("loss", " ".join(f"{v:.2f}" for v in values), flush=True)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
