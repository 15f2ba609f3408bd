import argparse
import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from corpus import ALPHABET, Shard, make_corpus
from engine import Trainer
from nets import Acoustic


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--utterances", type=int, default=96)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()

    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    torch.manual_seed(17)

    corpus = make_corpus(args.utterances)
    shard = Shard(corpus, dist.get_rank(), dist.get_world_size(), args.batch)
    model = DDP(Acoustic(20, 32, len(ALPHABET) + 1))
    optim = torch.optim.Adam(model.parameters(), lr=args.lr)

    trainer = Trainer(model, optim, shard)
    for epoch in range(args.epochs):
        trainer.epoch(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
