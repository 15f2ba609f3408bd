# expect: DDP410
# also: DDP405
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
# train.py, in the style of timm: scheduler factory, AverageMeter, validate(), step after every epoch
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as NativeDDP
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class SchedulerWrapper:
    def __init__(self, inner):
        self.inner = inner
        self.wants_metric = isinstance(inner, ReduceLROnPlateau)

    def step(self, epoch, metric=None):
        if self.wants_metric:
            self.inner.step(metric)  # <- culprit
        else:
            self.inner.step()


def create_scheduler(args, optimizer):
    if args.sched == "plateau":
        return SchedulerWrapper(ReduceLROnPlateau(optimizer, factor=0.1, patience=1))
    return SchedulerWrapper(CosineAnnealingLR(optimizer, T_max=args.epochs))


def create_data(rank, world):
    gen = torch.Generator().manual_seed(17)
    x = torch.randn(80 * world, 8, generator=gen)
    y = (x[:, 0] - x[:, 1] > 0).long()
    y[-16:] = 1 - y[-16:]  # wrong labels at the end of the validation list
    xs, ys = x.chunk(world)[rank], y.chunk(world)[rank]
    return (xs[:64], ys[:64]), (xs[64:], ys[64:])


def train_one_epoch(model, optimizer, loss_fn, data, batch_size):
    model.train()
    losses = AverageMeter()
    for x, y in zip(data[0].split(batch_size), data[1].split(batch_size)):
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), len(x))
    return losses.avg


@torch.no_grad()
def validate(model, loss_fn, data, batch_size):
    model.eval()
    losses = AverageMeter()
    for x, y in zip(data[0].split(batch_size), data[1].split(batch_size)):
        losses.update(loss_fn(model(x), y).item(), len(x))
    return {"loss": losses.avg}  # <- culprit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sched", default="plateau")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(42)
    model = NativeDDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = create_scheduler(args, optimizer)
    loss_fn = nn.CrossEntropyLoss()
    train_data, val_data = create_data(rank, dist.get_world_size())
    for epoch in range(args.epochs):
        train_loss = train_one_epoch(model, optimizer, loss_fn, train_data, args.batch_size)
        metrics = validate(model, loss_fn, val_data, args.batch_size)
        scheduler.step(epoch + 1, metrics["loss"])  # <- culprit
        print(f"[{rank}] epoch {epoch} train {train_loss:.4f} val {metrics['loss']:.4f} "
              f"lr {optimizer.param_groups[0]['lr']:.4g}", flush=True)
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
