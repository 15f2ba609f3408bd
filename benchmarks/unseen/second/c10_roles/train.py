import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hooks import hooks_for

ROLES = {0: "chief", 1: "scribe"}


class Trainer:
    def __init__(self, args, rank):
        torch.manual_seed(args.seed)
        self.rank = rank
        self.role = ROLES.get(rank, "worker")
        self.hooks = hooks_for(self.role)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 1)))
        self.opt = torch.optim.RMSprop(self.model.parameters(), lr=args.lr)
        self.rng = torch.Generator().manual_seed(args.seed + rank)
        self.log = {}

    def batches(self, n=8):
        for _ in range(n):
            x = torch.rand(20, 8, generator=self.rng)
            yield x, x.prod(1, keepdim=True) * 100

    def run_epoch(self):
        losses = []
        for x, y in self.batches():
            loss = nn.functional.l1_loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        self.log["loss"] = sum(losses) / len(losses)

    def fit(self, epochs):
        for epoch in range(epochs):
            for hook in self.hooks:
                hook.epoch_start(self)
            self.run_epoch()
            for hook in self.hooks:
                hook.epoch_end(self)
            print(f"{self.role} {self.rank} epoch {epoch}: {self.log}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    Trainer(args, dist.get_rank()).fit(args.epochs)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
