import datetime

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from parallel import Topology, build_expert_context


class Experts(nn.Module):
    def __init__(self, ids, dim):
        super().__init__()
        self.bank = nn.ModuleDict({str(i): nn.Linear(dim, dim) for i in ids})

    def forward(self, x):
        for layer in self.bank.values():
            x = x + torch.tanh(layer(x))
        return x


class Trainer:
    def __init__(self, num_experts, dim=16):
        self.rank = dist.get_rank()
        self.ctx = build_expert_context(Topology(num_experts))
        self.metrics_group = dist.new_group(timeout=datetime.timedelta(minutes=10))
        torch.manual_seed(0)
        self.dense = DDP(nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim)))
        self.experts = Experts(self.ctx.local, dim)
        params = [*self.dense.parameters(), *self.experts.parameters()]
        self.opt = torch.optim.SGD(params, lr=0.02)
        self.gen = torch.Generator().manual_seed(self.rank)
        self.dim = dim

    def step(self):
        x = torch.randn(16, self.dim, generator=self.gen)
        out = self.experts(self.dense(x))
        loss = (out - x.roll(1, dims=1)).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if self.ctx.active:
            usage = torch.tensor([float(len(self.ctx.local))])
            dist.all_reduce(usage, group=self.ctx.group)
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=self.metrics_group)
        return mean.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    trainer = Trainer(num_experts=max(1, 2 * (world - 1)) if world > 2 else 1)
    for i in range(10):
        loss = trainer.step()
        if trainer.rank == 0 and i % 3 == 0:
            print(f"iter {i}: {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
