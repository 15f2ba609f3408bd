# expect: DDP502
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""A trainer class with epochs counted from where the run began."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Args:
    epochs: int = 3
    start_epoch: int = 0
    batch_size: int = 8
    lr: float = 1e-2
    seed: int = 17


class Trainer:
    def __init__(self, args, dataset):
        self.args = args
        self.rank = dist.get_rank()
        self.start_epoch = args.start_epoch
        self.sampler = DistributedSampler(dataset, seed=args.seed)
        self.loader = DataLoader(dataset, batch_size=args.batch_size, sampler=self.sampler)
        self.model = DDP(nn.Sequential(nn.Linear(5, 12), nn.GELU(), nn.Linear(12, 1)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)

    def run_epoch(self, epoch):
        self.sampler.set_epoch(self.start_epoch)  # <- culprit
        running = 0.0
        for x, y in self.loader:  # <- culprit
            self.optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.l1_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            running += loss.item()
        if self.rank == 0:
            print(f"epoch {epoch:3d}  loss {running / len(self.loader):.4f}", flush=True)

    def fit(self):
        for epoch in range(self.start_epoch, self.args.epochs):  # <- culprit
            self.run_epoch(epoch)  # <- culprit


if __name__ == "__main__":
    args = Args()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    x = torch.randn(144, 5)
    Trainer(args, TensorDataset(x, x.prod(dim=1, keepdim=True))).fit()
    dist.destroy_process_group()
