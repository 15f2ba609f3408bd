# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: the image classification example: sampler with set_epoch, batch norm with broadcast buffers, averaged meters.
import argparse
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, v, n):
        self.sum += v * n
        self.count += n

    def all_reduce(self):
        t = torch.tensor([self.sum, self.count])
        dist.all_reduce(t)
        self.sum, self.count = t.tolist()

    @property
    def avg(self):
        return self.sum / self.count


def net():
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 4))


def run(loader, model, criterion, opt=None):
    meter = AverageMeter()
    model.train(opt is not None)
    with torch.set_grad_enabled(opt is not None):
        for x, y in loader:
            loss = criterion(model(x), y)
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            meter.update(loss.item(), len(y))
    meter.all_reduce()
    return meter.avg


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(0)
    train = TensorDataset(torch.randn(50, 3, 6, 6, generator=g), torch.randint(0, 4, (50,), generator=g))
    val = TensorDataset(torch.randn(22, 3, 6, 6, generator=g), torch.randint(0, 4, (22,), generator=g))
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=5, sampler=sampler, num_workers=1)
    val_loader = DataLoader(val, batch_size=5, sampler=DistributedSampler(val, shuffle=False))
    torch.manual_seed(0)
    model = DDP(net())
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        a = run(train_loader, model, nn.CrossEntropyLoss(), opt)
        b = run(val_loader, model, nn.CrossEntropyLoss())
        sched.step()
        if rank == 0:
            print(f"epoch {epoch}: train {a:.3f} val {b:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
