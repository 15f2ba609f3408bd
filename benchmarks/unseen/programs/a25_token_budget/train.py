import contextlib
import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from packing import make_lengths, plan

OPT_STEPS, BUDGET, MICRO = 8, 120, 40


class Pooler(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.emb = nn.Embedding(64, dim)
        self.proj = nn.Linear(dim, 64)

    def forward(self, ids):
        return self.proj(torch.tanh(self.emb(ids)))


def tokens(rank, index, n):
    g = torch.Generator().manual_seed(rank * 10007 + index)
    return torch.randint(0, 64, (n,), generator=g)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Pooler())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    lengths = make_lengths(rank, 200)
    micro_total = 0
    for step, micros in enumerate(itertools.islice(plan(lengths, BUDGET, MICRO), OPT_STEPS)):
        count = torch.tensor([sum(lengths[i] for m in micros for i in m)], dtype=torch.float64)
        dist.all_reduce(count)
        scale = world / count.item()
        opt.zero_grad()
        for k, micro in enumerate(micros):
            last = k == len(micros) - 1
            with contextlib.nullcontext() if last else model.no_sync():
                ids = torch.cat([tokens(rank, i, lengths[i]) for i in micro])
                loss = nn.functional.cross_entropy(model(ids[:-1]), ids[1:], reduction="sum") * scale
                loss.backward()
        micro_total += len(micros)
        opt.step()
        if rank == 0:
            print(f"step {step}: {int(count.item())} tokens, {len(micros)} micro-batches here", flush=True)
    print(f"rank {rank} ran {micro_total} micro-batches", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
