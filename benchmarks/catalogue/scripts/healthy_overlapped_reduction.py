# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: hand-written data parallelism with asynchronous reductions that are waited for before the step.
import torch
import torch.nn as nn
import torch.distributed as dist


class OverlappedAverager:
    """Starts the reduction of a gradient as soon as it is there."""

    def __init__(self, module):
        self.world = dist.get_world_size()
        self.pending = []
        for p in module.parameters():
            dist.broadcast(p.data, src=0)
            p.register_post_accumulate_grad_hook(self._start)

    def _start(self, p):
        self.pending.append((dist.all_reduce(p.grad, async_op=True), p))

    def finish(self):
        for work, p in self.pending:
            work.wait()
            p.grad.div_(self.world)
        self.pending.clear()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
    averager = OverlappedAverager(net)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(6):
        x = torch.randn(16, 10, generator=gen)
        loss = (net(x).squeeze(1) - x.max(1).values).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        shown = loss.detach().clone()
        handle = dist.all_reduce(shown, async_op=True)
        averager.finish()
        opt.step()
        handle.wait()
        if rank == 0:
            print(f"{step} {shown.item() / dist.get_world_size():.4f}")
    dist.barrier()
    dist.destroy_process_group()


main()
