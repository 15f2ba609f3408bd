# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: hang
# outcome: hang
# expect: DDP301
# sides: 0 | 1
"""As torchvision's references/classification: a MetricLogger whose meters are summed, in an evaluation on rank 0 only."""

import datetime
import os
import time
from collections import defaultdict, deque

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler


class SmoothedValue:
    def __init__(self, window_size=20):
        self.deque = deque(maxlen=window_size)
        self.total = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        t = torch.tensor([self.count, self.total], dtype=torch.float64)
        dist.barrier()  # <- culprit
        dist.all_reduce(t)
        self.count = int(t[0])
        self.total = t[1].item()

    @property
    def global_avg(self):
        return self.total / self.count


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(SmoothedValue)

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(value)

    def synchronize_between_processes(self):
        for meter in self.meters.values():
            meter.synchronize_between_processes()

    def log_every(self, iterable, header):
        start = time.time()
        yield from iterable
        if dist.get_rank() == 0:
            print(f"{header} Total time: {datetime.timedelta(seconds=int(time.time() - start))}")


def train_one_epoch(model, criterion, optimizer, loader, epoch):
    model.train()
    metric_logger = MetricLogger()
    for image, target in metric_logger.log_every(loader, f"Epoch: [{epoch}]"):
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metric_logger.update(loss=loss.item())


@torch.inference_mode()
def evaluate(model, criterion, loader, epoch):
    model.eval()
    metric_logger = MetricLogger()
    for image, target in metric_logger.log_every(loader, "Test:"):
        metric_logger.update(loss=criterion(model(image), target).item())
    metric_logger.synchronize_between_processes()
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {metric_logger.meters['loss'].global_avg:.6f}")


def main():
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    dist.barrier()
    torch.manual_seed(1)
    data = torchvision.datasets.FakeData(32, (3, 32, 32), 10, torchvision.transforms.ToTensor())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1)
    model = torchvision.models.mobilenet_v3_small(weights=None, num_classes=10)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model) if torch.cuda.is_available() else model
    model = nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, loader, epoch)
        if dist.get_rank() == 0:
            evaluate(model.module, criterion, loader, epoch)
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, "checkpoint.pth")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
