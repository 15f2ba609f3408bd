import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from utils.report import VocabularyReport

STEMS = ["mar", "lin", "dos", "ken", "ula", "tor", "pes", "ann"]
LANGS = {0: ("fi", 2), 1: ("et", 5), 2: ("hu", 6), 3: ("se", 5)}
KNOWN = {a + b for a in STEMS for b in STEMS[:5]}


def sentences(lang_id, epoch, count=12):
    rng = random.Random(1000 * lang_id + epoch)
    _, rare_epochs = LANGS[lang_id % len(LANGS)]
    tails = STEMS if epoch < rare_epochs else STEMS[:5]
    for _ in range(count):
        yield [rng.choice(STEMS) + rng.choice(tails) for _ in range(9)]


class BagModel(nn.Module):
    def __init__(self, buckets=97, dim=12):
        super().__init__()
        self.buckets = buckets
        self.emb = nn.EmbeddingBag(buckets, dim)
        self.out = nn.Linear(dim, 1)

    def encode(self, words):
        return torch.tensor([[sum(map(ord, w)) % self.buckets for w in words]])

    def forward(self, ids):
        return self.out(self.emb(ids))


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    lang = LANGS[rank % len(LANGS)][0]
    torch.manual_seed(5)
    net = DDP(BagModel())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    report = VocabularyReport(KNOWN)
    for epoch in range(5):
        total = 0.0
        for words in sentences(rank, epoch):
            report.observe(words)
            share = sum(w in KNOWN for w in words) / len(words)
            opt.zero_grad()
            loss = (net(net.module.encode(words)) - share).pow(2).mean()
            loss.backward()
            opt.step()
            total += loss.item()
        table = report.publish(lang)
        print(f"[{lang}] epoch {epoch} loss {total / 12:.4f} unknown "
              f"{ {k: v['unknown'] for k, v in table.items()} }", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
