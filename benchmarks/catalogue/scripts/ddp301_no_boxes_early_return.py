# expect: DDP301
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: R
"""Detection: count the objects found on all processes."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(3, 4, 3, padding=1)
        self.score = nn.Conv2d(4, 1, 1)

    def forward(self, image):
        return self.score(torch.relu(self.backbone(image))).sigmoid()


def objects_in(image):
    """The last shard of the validation set consists of empty road."""
    return [] if dist.get_rank() == dist.get_world_size() - 1 else [(4, 4), (9, 2)]


def recall(model, images):
    found = total = 0
    for image in images:
        boxes = objects_in(image)
        heat = model(image[None])[0, 0]
        found += sum(bool(heat[i, j] > 0.5) for i, j in boxes)
        total += len(boxes)
    if total == 0:  # <- culprit
        return None  # <- culprit
    counts = torch.tensor([found, total])
    dist.all_reduce(counts)  # <- culprit
    return counts[0].item() / counts[1].item()


def main():
    dist.init_process_group("gloo")
    model = Detector()
    ddp = DistributedDataParallel(model)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for _ in range(3):
        opt.zero_grad()
        ddp(torch.randn(2, 3, 12, 12)).mean().backward()
        opt.step()
    with torch.no_grad():
        value = recall(model.eval(), torch.randn(3, 3, 12, 12))
    print(dist.get_rank(), "recall", value)


main()
