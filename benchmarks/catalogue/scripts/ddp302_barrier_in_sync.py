# expect: DDP302
# also: DDP301
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Every tenth step all processes agree whether to stop."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class StopSignal:
    def __init__(self, votes):
        self.votes = votes
        self.flag = torch.zeros(1)

    def should_stop(self, loss):
        if not self.votes:
            dist.barrier()  # <- culprit
            return False
        self.flag.fill_(float(loss < 1e-6))
        dist.all_reduce(self.flag, op=dist.ReduceOp.MAX)
        return bool(self.flag.item())


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    # the last process only has augmented data, whose loss says little
    stop = StopSignal(votes=rank != size - 1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(30):
        x = torch.randn(5, 3)
        loss = nn.functional.mse_loss(model(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 9 and stop.should_stop(loss.item()):
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
