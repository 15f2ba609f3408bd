# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Momentum contrast on toy vectors: query encoder trained, key encoder an average, keys of all ranks in one queue."""
import copy
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@torch.no_grad()
def concat_all_gather(t):
    parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, t.contiguous())
    return torch.cat(parts)


class MoCo(nn.Module):
    def __init__(self, dim=8, size=64, momentum=0.9, temperature=0.2):
        super().__init__()
        self.m, self.t, self.size = momentum, temperature, size
        self.encoder_q = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, dim))
        self.encoder_k = copy.deepcopy(self.encoder_q)
        for p in self.encoder_k.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, size), dim=0))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def momentum_update(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.mul_(self.m).add_(q, alpha=1 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        keys = concat_all_gather(keys)
        at = int(self.ptr)
        assert self.size % keys.shape[0] == 0
        self.queue[:, at:at + keys.shape[0]] = keys.T
        self.ptr[0] = (at + keys.shape[0]) % self.size

    def forward(self, view_q, view_k):
        q = F.normalize(self.encoder_q(view_q), dim=1)
        with torch.no_grad():
            self.momentum_update()
            k = F.normalize(self.encoder_k(view_k), dim=1)
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone()
        logits = torch.cat([pos, neg], 1) / self.t
        self.enqueue(k)
        return logits, torch.zeros(len(q), dtype=torch.long)


def same_everywhere(t):
    lo, hi = t.detach().double().clone(), t.detach().double().clone()
    dist.all_reduce(lo, op=dist.ReduceOp.MIN)
    dist.all_reduce(hi, op=dist.ReduceOp.MAX)
    return torch.equal(lo, hi)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = TensorDataset(torch.randn(64, 12, generator=torch.Generator().manual_seed(7)))
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)
    torch.manual_seed(0)
    model = DDP(MoCo())
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    noise = torch.Generator().manual_seed(100 + rank)          # every rank draws its own views

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            a = x + 0.1 * torch.randn(x.shape, generator=noise)
            b = x + 0.1 * torch.randn(x.shape, generator=noise)
            logits, labels = model(a, b)
            loss = F.cross_entropy(logits, labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
    for name, t in model.module.state_dict().items():
        assert same_everywhere(t), name
    if rank == 0:
        print(f"queue pointer {int(model.module.ptr)} loss {loss.item():.3f}")
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
