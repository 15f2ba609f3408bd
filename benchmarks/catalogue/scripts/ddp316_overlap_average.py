# expect: DDP316
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Data parallel by hand: start all reductions, then wait for the lot (cheaper than one after another)."""
import torch
import torch.distributed as dist
import torch.nn as nn


class HandDDP:
    def __init__(self, module):
        self.module = module
        self.world = dist.get_world_size()
        for p in module.parameters():
            dist.broadcast(p.data, 0)

    def __call__(self, *args):
        return self.module(*args)

    def average_gradients(self):
        works = [dist.all_reduce(p.grad, async_op=True) for p in self.module.parameters()]
        map(lambda w: w.wait(), works)  # <- culprit
        for p in self.module.parameters():
            p.grad.div_(self.world)  # <- culprit


def accuracy(logits, y):
    return (logits.argmax(1) == y).float().mean().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(10 + rank)
    net = HandDDP(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)))
    opt = torch.optim.SGD(net.module.parameters(), lr=0.05, momentum=0.9)
    w = torch.linspace(-1, 1, 256)
    for step in range(10):
        x = torch.randn(16, 256)
        y = torch.bucketize(x @ w, torch.tensor([-6.0, 0.0, 6.0]))
        logits = net(x)
        loss = nn.functional.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        net.average_gradients()
        opt.step()  # <- culprit
        if rank == 0 and step % 3 == 0:
            print(step, round(loss.item(), 3), accuracy(logits, y))
    dist.barrier()
    dist.destroy_process_group()


main()
