# expect: DDP301
# ranks: 2
# culprits: [n-1]
# outcome: hang
# plain: T
# Re-enacts: issue "multi-gpu ddp fails if any one rank has all empty validation": metrics are gathered only where boxes exist.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


class IoUMetric:
    def __init__(self):
        self.values = []

    def update(self, pred, boxes):
        keep = boxes.sum(-1) > 0
        if keep.any():
            self.values.append((pred[keep] - boxes[keep]).abs().mean())

    def compute(self):
        local = torch.stack(self.values).mean().reshape(1)
        parts = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, local)
        return torch.cat(parts).mean().item()


def validate(model, loader):
    metric = IoUMetric()
    model.eval()
    with torch.no_grad():
        for img, boxes in loader:
            metric.update(model.module(img), boxes)
    model.train()
    results = {}
    if len(metric.values) > 0:  # <- culprit
        results["iou"] = metric.compute()  # <- culprit
    return results


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Linear(16, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    gen = torch.Generator().manual_seed(rank)
    train = DataLoader(TensorDataset(torch.randn(12, 16, generator=gen), torch.rand(12, 4, generator=gen)), 4)
    boxes = torch.rand(8, 4, generator=gen)
    if rank == world - 1:
        boxes.zero_()  # the tail of the (unshuffled) validation set is all empty frames
    val = DataLoader(TensorDataset(torch.randn(8, 16, generator=gen), boxes), 4)

    for img, target in train:
        loss = (model(img) - target).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    results = validate(model, val)  # <- culprit
    print(f"[{rank}] {results}", flush=True)
    dist.barrier()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
