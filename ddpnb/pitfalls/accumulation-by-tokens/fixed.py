"""Accumulate gradients until a batch has enough tokens, then synchronise and step."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TOKENS_PER_STEP = 64


def documents(rank, count=24):
    """Rank 0 reads short texts, the others long ones."""
    g = torch.Generator().manual_seed(rank)
    return [torch.randint(0, 50, (16 if rank == 0 else 32,), generator=g) for _ in range(count)]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = 0
    for text in documents(rank):
        tokens = torch.tensor(len(text))
        dist.all_reduce(tokens)
        seen += tokens.item()
        enough = seen >= TOKENS_PER_STEP
        with contextlib.nullcontext() if enough else model.no_sync():
            loss = nn.functional.cross_entropy(model(text[:-1]), text[1:])
            loss.backward()
        if enough:
            optimizer.step()
            optimizer.zero_grad()
            seen = 0
    dist.destroy_process_group()


main()
