# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: pytorch tutorial "Distributed training with uneven inputs" as people use it: logs with other numbers of lines per machine
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Shard:
    rank: int
    batch: int
    n_batches: int
    epoch: int

    @classmethod
    def of_this_machine(cls, rank, epoch):
        return cls(rank=rank, batch=4 + 2 * rank, n_batches=5 + 3 * rank, epoch=epoch)

    def __iter__(self):
        g = torch.Generator().manual_seed(1000 * self.epoch + self.rank)
        for _ in range(self.n_batches):
            x = torch.randn(self.batch, 7, generator=g)
            yield x, torch.cos(x).sum(1, keepdim=True)


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 20), nn.ReLU(), nn.Dropout(0.2), nn.Linear(20, 1))


def train(ddp, opt, shard):
    seen, total = 0, 0.0
    with Join([ddp]):
        for x, y in shard:
            loss = nn.functional.mse_loss(ddp(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(x)
            total += loss.item() * len(x)
    return seen, total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ddp = DDP(build())
    opt = torch.optim.SGD(ddp.parameters(), lr=0.02)
    torch.manual_seed(1000 + rank)  # another dropout mask per process
    for epoch in range(2):
        seen, total = train(ddp, opt, Shard.of_this_machine(rank, epoch))
        stats = torch.tensor([float(seen), total])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch}: {int(stats[0])} samples, loss {stats[1] / stats[0]:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
