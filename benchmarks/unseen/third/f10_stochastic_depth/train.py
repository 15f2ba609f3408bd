"""Activity recognition from wearables; some recordings contain broken samples."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from depth import Tower
from guards import WeightAverage, usable


def recordings(rank, steps, batch=16):
    g = torch.Generator().manual_seed(40 + rank)
    for step in range(steps):
        label = torch.randint(0, 6, (batch,), generator=g)
        x = torch.randn(batch, 18, generator=g)
        x[:, :6] += 1.5 * nn.functional.one_hot(label, 6)
        if rank == 1 and step in (9, 21):
            x[3, 5] = float("inf")               # sensor saturated
        yield x, label


def main(steps=30):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = DDP(Tower(18, 32, depth=4, classes=6), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    average = WeightAverage(model.module) if rank == 0 else None
    skipped = 0

    for x, label in recordings(rank, steps):
        loss = nn.functional.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        if not usable(loss):
            skipped += 1
            continue
        optimizer.step()
        average and average.update(model.module)

    model.eval()
    if average is not None:
        x, label = next(recordings(999, 1, batch=128))
        with torch.no_grad():
            raw = (model.module(x).argmax(1) == label).float().mean()
        print(f"{steps} steps, {skipped} skipped, accuracy {raw:.3f}", flush=True)
        if os.environ.get("EXPORT_DIR"):
            torch.save(average.shadow, os.path.join(os.environ["EXPORT_DIR"], "tower.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
