"""Mixture of experts with one expert per rank: router and head are replicated, experts are not."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dispatch import Exchange, split_plan

STEPS, WIDTH = 16, 16


class MoE(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        torch.manual_seed(1)
        self.router = nn.Linear(WIDTH, world)
        self.head = nn.Linear(WIDTH, 4)
        torch.manual_seed(100 + rank)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def shared_parameters(self):
        return [*self.router.parameters(), *self.head.parameters()]

    def forward(self, x):
        gate, choice = self.router(x).softmax(1).max(1)
        order = choice.argsort(stable=True)
        sent, received = split_plan(choice, self.router.out_features)
        mine = Exchange.apply(x[order], sent, received)
        back = Exchange.apply(self.expert(mine), received, sent)
        restored = torch.empty_like(back).index_copy(0, order, back)
        return self.head(x + gate[:, None] * restored)


def tokens(rank, step):
    g = torch.Generator().manual_seed(rank * 500 + step)
    n = 20 + 7 * ((rank + step) % 4)
    x = torch.randn(n, WIDTH, generator=g) + 0.4 * rank
    return x, (x[:, :4] + x[:, 4:8]).argmax(1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = MoE(rank, world)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x, y = tokens(rank, step)
        seen = torch.tensor([float(len(x))])
        dist.all_reduce(seen)
        opt.zero_grad()
        # sum over the global batch: ranks hold different numbers of tokens
        loss = F.cross_entropy(model(x), y, reduction="sum") / seen.item()
        loss.backward()
        for p in model.shared_parameters():
            dist.all_reduce(p.grad)
        opt.step()
        total = loss.detach().clone()
        dist.reduce(total, dst=world - 1)
        if rank == world - 1 and step % 5 == 0:
            print(f"step {step}: loss {total.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
