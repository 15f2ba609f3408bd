import argparse
import logging
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from data import Reviews, collate
from engine import StepRunner
from model import ReviewScorer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if args.verbose else logging.WARNING)

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    reviews = Reviews()
    sampler = DistributedSampler(reviews, shuffle=False)
    loader = DataLoader(reviews, args.batch_size, sampler=sampler, collate_fn=collate)
    model = DDP(ReviewScorer())
    step = StepRunner(model, torch.optim.Adam(model.parameters(), lr=3e-3))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        losses = [value for ids, stars in loader if (value := step(ids, stars)) is not None]
        print(f"rank {os.environ['RANK']} epoch {epoch} loss {sum(losses) / len(losses):.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
