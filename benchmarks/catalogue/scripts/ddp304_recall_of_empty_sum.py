# expect: DDP304
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: A
# Re-enacts: pytorch issues on all_reduce with torch.tensor(python int) on ranks without detections (int64 against float32)
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class RecallMeter:
    """Keeps one float per ground-truth box of the local images."""

    def __init__(self):
        self.reset()

    def reset(self):
        self._hits = []
        self._boxes = 0

    def update(self, scores, boxes_per_image):
        for s, n in zip(scores, boxes_per_image):
            if n == 0:
                continue
            self._hits.append((s > 0).float().item())
            self._boxes += n

    @property
    def local_total(self):
        return torch.tensor(sum(self._hits))  # <- culprit

    def compute(self):
        hits = self.local_total
        dist.all_reduce(hits)  # <- culprit
        boxes = torch.tensor(float(self._boxes))
        dist.all_reduce(boxes)
        return (hits / boxes.clamp(min=1)).item()


def images(rank, world, epoch):
    g = torch.Generator().manual_seed(100 * epoch + rank)
    x = torch.randn(10, 5, generator=g)
    n_boxes = torch.randint(1, 3, (10,), generator=g)
    if epoch == 1 and rank == world - 1:
        n_boxes.zero_()  # night shots, nobody on the street
    return x, n_boxes.tolist()


dist.init_process_group(backend="gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = DDP(nn.Linear(5, 1))
optim = torch.optim.SGD(net.parameters(), lr=0.1)
meter = RecallMeter()
for epoch in range(3):
    meter.reset()
    x, n_boxes = images(rank, world, epoch)
    for i in range(0, 10, 5):
        scores = net(x[i:i + 5]).squeeze(-1)
        loss = (scores - 1).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        meter.update(scores.detach(), n_boxes[i:i + 5])
    recall = meter.compute()  # <- culprit
    if rank == 0:
        print(f"epoch {epoch} recall {recall:.3f}", flush=True)
dist.destroy_process_group()
