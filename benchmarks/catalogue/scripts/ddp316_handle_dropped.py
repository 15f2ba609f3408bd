# expect: DDP316
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
import torch
import torch.distributed as dist
from torch import nn


class LocalSGD:
    """Train alone for a few steps, then average the weights of all processes."""

    def __init__(self, net, lr, every):
        self.net, self.every = net, every
        self.opt = torch.optim.SGD(net.parameters(), lr=lr)
        self.steps = 0

    def step(self, loss):
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.steps += 1
        if self.steps % self.every == 0:
            self.average()

    @torch.no_grad()
    def average(self):
        for p in self.net.parameters():
            p.div_(dist.get_world_size())
            dist.all_reduce(p.data, async_op=True)  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    trainer = LocalSGD(net, lr=0.01, every=4)
    torch.manual_seed(dist.get_rank() + 1)
    for _ in range(16):
        x = torch.randn(8, 64)
        trainer.step((net(x) - x[:, :1]).abs().mean())
    print(dist.get_rank(), sum(p.sum().item() for p in net.parameters()))
    dist.barrier()
    dist.destroy_process_group()


main()
