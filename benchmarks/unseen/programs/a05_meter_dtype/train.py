import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from meters import Meter

LANGS = ["en", "de", "fr", "sw"]


class Tagger(nn.Module):
    def __init__(self, vocab=120, dim=24, tags=6):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, tags)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def batches(rank, n, rare_from):
    g = torch.Generator().manual_seed(40 + rank)
    for i in range(n):
        ids = torch.randint(0, 120, (8, 10), generator=g)
        lang = LANGS[(i + rank) % 3]
        if ids[0, 0].item() % 2 == 0 and rank != rare_from:
            lang = "sw"
        yield lang, ids, ids % 6


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=12)
    ap.add_argument("--epochs", type=int, default=2)
    opt = ap.parse_args()
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    net = DDP(Tagger())
    optim = torch.optim.Adam(net.parameters(), lr=1e-2)
    meter = Meter()
    for epoch in range(opt.epochs):
        meter.reset()
        for lang, ids, tags in batches(rank, opt.steps, rare_from=1):
            logits = net(ids)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
            optim.zero_grad()
            loss.backward()
            optim.step()
            acc = (logits.argmax(-1) == tags).float().mean()
            meter.update(loss=loss.detach(), **{f"acc_{lang}": acc})
        summary = meter.averages(["loss", *(f"acc_{l}" for l in LANGS)])
        if rank == 0:
            print(epoch, {k: round(v, 3) for k, v in summary.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
