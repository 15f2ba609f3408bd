# expect: DDP305
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
# Re-enacts: population based training over torch.distributed: the root of the broadcast is chosen by each process
import random

import torch
import torch.distributed as dist
from torch import nn

POPULATION = [0.05, 0.05, 0.002, 0.001]  # a learning rate per worker


class Worker:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.lr = POPULATION[rank % len(POPULATION)]
        self.opt = torch.optim.SGD(self.net.parameters(), lr=self.lr)
        self.rng = random.Random(rank)

    def train_some(self, steps=5):
        g = torch.Generator().manual_seed(11)
        for _ in range(steps):
            x = torch.randn(16, 4, generator=g)
            loss = (self.net(x) - x.sum(1, keepdim=True)).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    def winner(self, scores):
        # no need to copy when we are as good as the best
        return min(range(self.world), key=lambda r: (round(scores[r], 4), r != self.rank))  # <- culprit

    def exploit(self, scores):
        best = self.winner(scores)  # <- culprit
        for p in self.net.parameters():
            dist.broadcast(p.data, src=best)  # <- culprit
        return best

    def explore(self):
        for group in self.opt.param_groups:
            group["lr"] = self.lr * self.rng.choice([0.8, 1.25])


def main():
    dist.init_process_group("gloo")
    w = Worker(dist.get_rank(), dist.get_world_size())
    for generation in range(2):
        scores = [None] * w.world
        dist.all_gather_object(scores, w.train_some())
        best = w.exploit(scores)
        w.explore()
        print(f"[{w.rank}] generation {generation}: best is {best}, lr {w.opt.param_groups[0]['lr']:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
