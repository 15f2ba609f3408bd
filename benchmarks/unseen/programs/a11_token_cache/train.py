import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from tokenization import load_tokens


def is_main_process():
    return int(os.environ.get("LOCAL_RANK", 0)) == 0


def shared_dir():
    box = [tempfile.mkdtemp(prefix="tok_") if is_main_process() else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


class BigramLM(nn.Module):
    def __init__(self, vocab, dim=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.out(self.emb(ids))


def windows(ids, length, rank, world):
    starts = range(0, len(ids) - length - 1, length)
    usable = len(starts) // world * world
    for s in list(starts)[rank:usable:world]:
        yield ids[s:s + length], ids[s + 1:s + length + 1]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    root = shared_dir()
    options = {"lower": "yes", "kind": "word", "repeat": 40}
    ids, vocab = load_tokens(root, options, builder=is_main_process())
    dist.barrier()
    torch.manual_seed(0)
    model = DDP(BigramLM(vocab))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(2):
        for x, y in windows(ids, 16, rank, world):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if is_main_process():
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
