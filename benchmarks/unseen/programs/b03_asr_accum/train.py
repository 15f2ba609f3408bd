import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from engine.loop import TrainLoop


class Encoder(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.out = nn.Linear(dim, 4)

    def forward(self, x):
        return self.out(x + self.ff(self.norm(x)))


def make_dataset(n=384, dim=20):
    gen = torch.Generator().manual_seed(11)
    x = torch.randn(n, dim, generator=gen)
    w = torch.randn(dim, 4, generator=gen)
    return TensorDataset(x, torch.tanh(x @ w))


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", default=2, type=int)
    p.add_argument("--accum-grad", default=2, type=int)
    p.add_argument("--batch-size", default=8, type=int)
    p.add_argument("--lr", default=0.05, type=float)
    return p.parse_args()


def main():
    args = get_args()
    dist.init_process_group(backend="gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Encoder(20, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    dataset = make_dataset()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    loop = TrainLoop(model, optimizer, args.accum_grad)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loop.run_epoch(loader, epoch)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
