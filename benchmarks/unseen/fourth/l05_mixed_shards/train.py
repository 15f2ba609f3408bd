"""Ranks own shards of different length and train on all of it."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

BASE, DIM, BATCH = 9, 10, 8
EPOCHS = 2


class Shard:
    def __init__(self, rank):
        self.rank = rank
        self.batches = BASE + 3 * rank if rank != 1 else BASE - 4

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.rank)
        for _ in range(self.batches):
            x = torch.randn(BATCH, DIM, generator=gen)
            y = (x[:, :1] - x[:, 1:2]).sign()
            yield x, y


def build():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(DIM, 20), nn.LayerNorm(20), nn.ReLU(), nn.Linear(20, 1))


def train_epoch(net, opt, shard):
    seen, total = 0, 0.0
    with Join([net]):
        for x, y in shard:
            loss = nn.functional.soft_margin_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(x)
            total += loss.item() * len(x)
    return seen, total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = DDP(build())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    shard = Shard(rank)
    for epoch in range(EPOCHS):
        seen, total = train_epoch(net, opt, shard)
        stats = torch.tensor([float(seen), total])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch}: {int(stats[0])} samples, loss {stats[1] / stats[0]:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
