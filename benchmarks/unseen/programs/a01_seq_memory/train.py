import argparse
import logging

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from corpus import TokenCorpus
from engine import ActivationBudget, Engine


class Classifier(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.body = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 4))

    def forward(self, tokens):
        return self.body(self.emb(tokens).mean(dim=1))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batches", type=int, default=6, help="batches per rank")
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--vocab", type=int, default=200)
    p.add_argument("--max-elements", type=int, default=20000)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(17)

    gen = torch.Generator().manual_seed(3)
    corpus = TokenCorpus(args.batches * world + 3, args.batch_size, args.vocab, gen)
    sampler = DistributedSampler(corpus, shuffle=False, drop_last=True)
    loader = DataLoader(corpus, sampler=sampler, batch_size=None)

    model = DistributedDataParallel(Classifier(args.vocab, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine = Engine(model, optimizer, ActivationBudget(args.max_elements))

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        mean_loss = engine.run_epoch(loader)
        total = torch.tensor([mean_loss])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
