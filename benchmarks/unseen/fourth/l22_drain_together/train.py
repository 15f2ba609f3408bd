"""Streams of different length per rank; all stop as soon as one of them is dry."""
import torch
import torch.distributed as dist
import torch.nn as nn

DIM, BATCH = 12, 8


class Stream:
    """An iterator that can say ahead whether something is left."""

    def __init__(self, rank):
        self.left = 10 + 4 * ((rank * 2 + 1) % 3)
        self.gen = torch.Generator().manual_seed(rank)

    def has_next(self):
        return self.left > 0

    def next(self):
        self.left -= 1
        x = torch.randn(BATCH, DIM, generator=self.gen)
        return x, x.abs().mean(1, keepdim=True)


class OverlappedAverage:
    """Starts the reduction of a parameter when its gradient is there; collects them later."""

    def __init__(self, net):
        self.pending = []
        self.world = dist.get_world_size()
        for p in net.parameters():
            p.register_post_accumulate_grad_hook(self._start)

    def _start(self, p):
        self.pending.append((p, dist.all_reduce(p.grad, async_op=True)))

    def finish(self):
        while self.pending:
            p, work = self.pending.pop()
            work.wait()
            p.grad /= self.world


def build():
    torch.manual_seed(12)
    return nn.Sequential(nn.Linear(DIM, 24), nn.Softplus(), nn.Linear(24, 24), nn.Softplus(), nn.Linear(24, 1))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = build()
    average = OverlappedAverage(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    stream, steps = Stream(rank), 0
    while True:
        ready = torch.tensor([int(stream.has_next())])
        vote = dist.all_reduce(ready, async_op=True)
        batch = stream.next() if stream.has_next() else None
        vote.wait()
        if ready.item() < world:
            break
        x, y = batch
        loss = (net(x) - y).pow(2).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        average.finish()
        opt.step()
        steps += 1
    print(f"[{rank}] {steps} steps, {stream.left} batches not used", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
