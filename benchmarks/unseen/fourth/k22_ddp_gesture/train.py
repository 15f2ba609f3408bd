import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from metrics import EvalMetrics

GESTURES = 6
logger = logging.getLogger("gesture")


def accelerometer(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, GESTURES, (n,), generator=g)
    t = torch.linspace(0, 6.28, 40)
    x = torch.stack([torch.sin((k + 1) * t) for k in y.tolist()]).unsqueeze(1).repeat(1, 3, 1)
    return TensorDataset(x + 0.8 * torch.randn(x.shape, generator=g), y)


def build():
    return nn.Sequential(
        nn.Conv1d(3, 12, 5, stride=2), nn.ReLU(), nn.Conv1d(12, 24, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(48, GESTURES),
    )


def validate(model, loader, metrics, epoch):
    model.eval()
    metrics.reset()
    with torch.inference_mode():
        for x, y in loader:
            metrics.update(model(x), y)
    if logger.isEnabledFor(logging.INFO):
        values = metrics.summary()
        logger.info("epoch %d: %s", epoch, " ".join(f"{k} {v:.3f}" for k, v in values.items()))
    model.train()


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    dist.init_process_group("gloo")
    torch.manual_seed(12)

    train_set, val_set = accelerometer(480, 0), accelerometer(120, 1)
    sampler = DistributedSampler(train_set, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=20, sampler=DistributedSampler(val_set, shuffle=False))
    model = DDP(build())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    metrics = EvalMetrics(GESTURES)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        validate(model, val_loader, metrics, epoch)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
