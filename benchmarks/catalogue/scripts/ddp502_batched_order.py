# expect: DDP502
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset


def get_data():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(80, 6, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long()
    return TensorDataset(x, y)


def collate(rows):
    return torch.stack([r[0] for r in rows]), torch.stack([r[1] for r in rows])


def get_loader(ds, args):
    sampler = DistributedSampler(ds, shuffle=True, seed=args.seed, drop_last=True)  # <- culprit
    batches = BatchSampler(sampler, args.batch, drop_last=True)
    return DataLoader(ds, batch_sampler=batches, collate_fn=collate)  # <- culprit


class Callback:
    def epoch_begin(self, trainer, epoch): ...
    def epoch_end(self, trainer, epoch): ...


class Reshuffle(Callback):
    def epoch_begin(self, trainer, epoch):
        sampler = getattr(trainer.loader, "sampler", None)
        if isinstance(sampler, DistributedSampler):  # <- culprit
            sampler.set_epoch(epoch)  # <- culprit


class Report(Callback):
    def epoch_end(self, trainer, epoch):
        t = torch.tensor(trainer.losses).mean()
        dist.all_reduce(t)
        if dist.get_rank() == 0:
            print(f"[{epoch}] {t.item() / dist.get_world_size():.4f}", flush=True)


class Trainer:
    def __init__(self, model, loader, lr, callbacks):
        self.model, self.loader, self.callbacks = model, loader, callbacks
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.losses = []

    def emit(self, event, epoch):
        for c in self.callbacks:
            getattr(c, event)(self, epoch)

    def run(self, epochs):
        for epoch in range(epochs):
            self.losses.clear()
            self.emit("epoch_begin", epoch)
            for x, y in self.loader:  # <- culprit
                self.opt.zero_grad()
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                self.opt.step()
                self.losses.append(loss.item())
            self.emit("epoch_end", epoch)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=5)
    p.add_argument("--seed", type=int, default=17)
    args = p.parse_args()
    dist.init_process_group(backend="gloo")
    torch.manual_seed(args.seed)
    net = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    Trainer(DDP(net), get_loader(get_data(), args), 0.05, [Reshuffle(), Report()]).run(args.epochs)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()
