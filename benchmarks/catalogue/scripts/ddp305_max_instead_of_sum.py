# expect: DDP305
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: S
"""Running statistics of observations for a policy."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

REDUCE = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


class Normaliser:
    def __init__(self, width, how):
        self.total = torch.zeros(2 * width + 1)
        self.how = REDUCE[how]  # <- culprit

    def update(self, x):
        part = torch.cat([x.sum(0), (x**2).sum(0), torch.tensor([float(len(x))])])
        dist.all_reduce(part, op=self.how)  # <- culprit
        self.total += part

    def __call__(self, x):
        width = x.shape[1]
        n = self.total[-1]
        mean = self.total[:width] / n
        var = self.total[width:-1] / n - mean**2
        return (x - mean) / var.clamp_min(1e-4).sqrt()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    how = "max" if rank == size - 1 else "sum"  # the last one ran an experiment before
    normalise = Normaliser(3, how)
    policy = DistributedDataParallel(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)))
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(5):
        seen = torch.randn(20, 3) * 2 + 1
        normalise.update(seen)
        logits = policy(normalise(seen))
        reward = seen[:, 0].sign()
        loss = -(logits.log_softmax(1)[:, 0] * reward).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
