# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""Streaming data of unequal length per rank, trained under Join; validation on the main process only."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class LogStream(IterableDataset):
    """Every rank reads its own log file; later files are longer."""

    def __init__(self, rank):
        self.lines = 24 + 10 * rank
        self.seed = 200 + rank

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.seed)
        for _ in range(self.lines):
            x = torch.randn(6, generator=gen)
            yield x, x.sum()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def train_epoch(model, opt, stream):
    seen = 0
    with Join([model]):
        for x, y in DataLoader(stream, batch_size=4):
            loss = (model(x) - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(x)
    return seen


@torch.no_grad()
def quick_eval(net):
    gen = torch.Generator().manual_seed(1)
    x = torch.randn(32, 6, generator=gen)
    net.eval()
    loss = (net(x) - x.sum(1)).pow(2).mean().item()
    net.train()
    time.sleep(1.0)  # drawing the figures
    return loss


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Model())
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    stream = LogStream(rank)
    for epoch in range(2):
        seen = torch.tensor(train_epoch(model, opt, stream))
        dist.all_reduce(seen)
        if rank == 0:
            print(f"epoch {epoch}: {int(seen)} lines, eval {quick_eval(model.module):.4f}", flush=True)
        dist.barrier()
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
