import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from data import get_loader
from options import parse_args


class AverageMeter:
    def __init__(self):
        self.sum, self.n = 0.0, 0

    def update(self, v, n=1):
        self.sum += v * n
        self.n += n

    @property
    def avg(self):
        return self.sum / max(1, self.n)


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, 4)
    )


def main():
    args = parse_args()
    dist.init_process_group(backend="gloo", init_method="env://")
    torch.manual_seed(1)
    model = DDP(build_model())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    loader = get_loader(args)
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        meter = AverageMeter()
        for i, (x, y) in enumerate(loader):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(loss.item(), len(y))
            if i % args.print_freq == 0 and dist.get_rank() == 0:
                print(f"Epoch: [{epoch}][{i}/{len(loader)}] Loss {meter.avg:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
