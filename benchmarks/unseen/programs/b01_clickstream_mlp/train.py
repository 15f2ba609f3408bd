import argparse
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from callbacks import LossMeter, ReviveUnits
from data import StreamConfig, build_loader


class Trainer:
    def __init__(self, args):
        self.rank = dist.get_rank()
        self.cfg = StreamConfig(batch_size=args.batch_size)
        self.loader = build_loader(self.rank, self.cfg)
        torch.manual_seed(args.seed)
        net = nn.Sequential(nn.Linear(self.cfg.num_features, 48), nn.ReLU(), nn.Linear(48, 1))
        nn.init.constant_(net[0].bias, -0.3)
        self.model = DDP(net)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.loss_fn = nn.BCEWithLogitsLoss()
        self.callbacks = [LossMeter(), ReviveUnits(net[0])]
        self.epoch = 0

    def fit(self, epochs):
        for self.epoch in range(epochs):
            self.model.train()
            for x, y in self.loader:
                loss = self.loss_fn(self.model(x).squeeze(-1), y)
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                self.opt.step()
                for cb in self.callbacks:
                    cb.on_batch_end(self, loss.item())
            for cb in self.callbacks:
                cb.on_epoch_end(self)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo")
    Trainer(args).fit(args.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
