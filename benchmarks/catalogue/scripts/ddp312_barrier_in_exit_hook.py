# expect: DDP312
# also: DDP302
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: T
# Re-enacts: "clean-up in finally" recipes: a barrier in a context manager's exit hides the exception (lightning / accelerate threads)
import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


@contextlib.contextmanager
def distributed(backend="gloo"):
    dist.init_process_group(backend)
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.barrier()  # nobody may leave while others still write  # <- culprit
        dist.destroy_process_group()


class Tokenizer:
    def __init__(self, words):
        self.ids = {w: i for i, w in enumerate(words)}

    def encode(self, text):
        return torch.tensor([self.ids[w] for w in text.split()])  # <- culprit


CORPUS = ["the cat sat", "a dog sat", "the dog ran", "a cat ran"]
RARE = ["the cat purred", "a dog sat"]


def shard(rank, world):
    lines = CORPUS * 3
    if rank == world - 1:
        lines = CORPUS + RARE + CORPUS  # scraped later than the vocabulary
    return lines


def collate(tok, lines):
    return torch.stack([tok.encode(t) for t in lines])  # <- culprit


def fit(rank, world, tok):
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(len(tok.ids), 8), nn.Flatten(), nn.Linear(24, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    lines = shard(rank, world)
    for step in range(0, 10, 2):
        x = collate(tok, lines[step:step + 2])  # <- culprit
        y = (x.sum(1) % 2).long()
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print("step", step // 2, "loss", round(loss.item(), 3), flush=True)


if __name__ == "__main__":
    with distributed() as (rank, world):
        fit(rank, world, Tokenizer("the a cat dog sat ran".split()))  # <- culprit
