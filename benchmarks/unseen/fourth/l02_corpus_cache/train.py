"""Language model on a corpus that is tokenised once and then read from a cache."""
import contextlib
import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

BLOCK, WIDTH = 12, 24


@contextlib.contextmanager
def main_process_first(rank):
    if rank > 0:
        dist.barrier()
    try:
        yield
    finally:
        if rank == 0:
            dist.barrier()


def shared_folder(rank):
    box = [tempfile.mkdtemp(prefix="corpus_") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def tokenise(cache):
    if os.path.exists(cache):
        return torch.load(cache)
    text = "the quick brown fox jumps over the lazy dog and runs away " * 60
    chars = sorted(set(text))
    table = {c: i for i, c in enumerate(chars)}
    ids = []
    deadline = time.time() + 5.0
    for n, c in enumerate(text):
        ids.append(table[c])
        if n % 100 == 0 and time.time() < deadline:
            time.sleep(0.15)
    payload = {"ids": torch.tensor(ids), "vocab": len(chars)}
    torch.save(payload, cache + ".part")
    os.replace(cache + ".part", cache)
    return payload


class CharModel(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.emb = nn.Embedding(vocab, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def blocks(ids, rank, world, steps, batch=8):
    gen = torch.Generator().manual_seed(31 + rank)
    for _ in range(steps):
        starts = torch.randint(0, len(ids) - BLOCK - 1, (batch,), generator=gen).tolist()
        yield torch.stack([ids[s:s + BLOCK + 1] for s in starts])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = shared_folder(rank)
    with main_process_first(rank):
        data = tokenise(os.path.join(folder, "tokens.pt"))
    torch.manual_seed(0)
    net = DDP(CharModel(data["vocab"]))
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step, block in enumerate(blocks(data["ids"], rank, world, steps=15)):
        logits = net(block[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
