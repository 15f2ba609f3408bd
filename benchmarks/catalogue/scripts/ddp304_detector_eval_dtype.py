# expect: DDP304
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BoxHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.box = nn.Linear(16, 4)

    def forward(self, feats):
        return self.box(self.body(feats))


def load_images(world):
    """Rows: 6 features, box (x1 y1 x2 y2), number of objects. The far end of the set is empty background."""
    gen = torch.Generator().manual_seed(21)
    n = 12 * world
    feats = torch.randn(n, 6, generator=gen)
    corner = torch.rand(n, 2, generator=gen)
    boxes = torch.cat([corner, corner + 0.5], dim=1)
    count = torch.ones(n, dtype=torch.long)
    count[n - 12:] = 0
    return feats, boxes, count


def pair_iou(a, b):
    lt = torch.max(a[:, :2], b[:, :2])
    rb = torch.min(a[:, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, 0] * wh[:, 1]
    area = lambda t: ((t[:, 2:] - t[:, :2]).clamp(min=0)).prod(1)
    return inter / (area(a) + area(b) - inter + 1e-6)


class CocoLikeEvaluator:
    def __init__(self):
        self.ious = []

    def update(self, pred, target, count):
        keep = count > 0
        if keep.any():
            self.ious += pair_iou(pred[keep], target[keep]).double().tolist()

    def accumulate(self):
        hits = sum(i for i in self.ious)
        return torch.tensor([hits, len(self.ious)]) if not self.ious else \
            torch.tensor([hits, len(self.ious)], dtype=torch.float64)

    def synchronize(self):
        stats = self.accumulate()  # <- culprit
        dist.all_reduce(stats)  # <- culprit
        total, seen = stats.tolist()
        return total / max(seen, 1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    model = DDP(BoxHead())
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    feats, boxes, count = (t.chunk(world)[rank] for t in load_images(world))
    for it in range(0, 12, 4):
        sl = slice(it, it + 4)
        loss = ((model(feats[sl]) - boxes[sl]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    evaluator = CocoLikeEvaluator()
    with torch.no_grad():
        evaluator.update(model.module(feats), boxes, count)
    miou = evaluator.synchronize()
    print(f"rank {rank} mean IoU {miou:.4f}", flush=True)
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
