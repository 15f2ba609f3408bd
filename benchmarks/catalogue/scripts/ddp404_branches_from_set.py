# expect: DDP404
# ranks: 2 4
# culprits: any
# outcome: any
# plain: S
# Re-enacts: fairseq / multi-task heads built from a set of language names: the order depends on PYTHONHASHSEED
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAIRS = ["de-en", "fr-en", "en-de", "zh-en", "en-fr", "ja-en", "en-zh", "de-fr", "fr-ja",
         "es-en", "ko-en", "it-fr", "pt-es", "nl-de", "pl-de"]


def languages(pairs):
    return {lang for p in pairs for lang in p.split("-")}


class MultilingualModel(nn.Module):
    """A shared encoder and one adapter per source language."""

    def __init__(self, langs, dim=8):
        super().__init__()
        self.encoder = nn.Linear(dim, dim)
        self.adapters = nn.ModuleDict()
        for lang in langs:  # <- culprit
            self.adapters[lang] = nn.Linear(dim, dim)

    def forward(self, batch):
        total = 0.0
        for lang, x in batch.items():
            h = torch.tanh(self.encoder(x))
            total = total + (self.adapters[lang](h) - x).pow(2).mean()
        return total / len(batch)


def make_batch(langs, gen, dim=8):
    return {lang: torch.randn(4, dim, generator=gen) + 0.3 * i for i, lang in enumerate(sorted(langs))}


def main(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    langs = languages(PAIRS)
    model = DDP(MultilingualModel(langs))  # <- culprit
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    gen = torch.Generator().manual_seed(args.seed + rank)
    for step in range(args.steps):
        loss = model(make_batch(langs, gen))
        opt.zero_grad()
        loss.backward()
        opt.step()
    for_log = loss.detach().clone()
    dist.all_reduce(for_log)
    if rank == 0:
        print(f"mean loss {for_log.item() / dist.get_world_size():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=1)
    main(p.parse_args())
