# expect: DDP401
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: E
# Re-enacts: detectron2 / mmdetection / torchvision threads: images without boxes skip the mask head on one GPU
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


class MaskHead(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv2d(dim, dim, 1)
        self.predictor = nn.Conv2d(dim, 1, 1)

    def forward(self, feat, targets):
        rows = [i for i, t in enumerate(targets) if t["boxes"]]
        if not rows:
            return {}  # <- culprit
        out = self.predictor(F.relu(self.conv(feat[rows])))
        gt = torch.stack([targets[i]["mask"] for i in rows])
        return {"loss_mask": F.binary_cross_entropy_with_logits(out, gt)}


class Detector(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.backbone = nn.Conv2d(3, dim, 3, padding=1)
        self.rpn = nn.Conv2d(dim, 1, 1)
        self.mask_head = MaskHead(dim)

    def forward(self, images, targets):
        feat = F.relu(self.backbone(images))
        objectness = self.rpn(feat).mean((1, 2, 3))
        has_box = torch.tensor([float(bool(t["boxes"])) for t in targets])
        losses = {"loss_rpn": F.binary_cross_entropy_with_logits(objectness, has_box)}
        losses.update(self.mask_head(feat, targets))  # <- culprit
        return losses


def loader(rank, world, steps=5, batch=2):
    g = torch.Generator().manual_seed(rank + 1)
    for step in range(steps):
        images = torch.randn(batch, 3, 6, 6, generator=g)
        targets = []
        for b in range(batch):
            background_only = rank == world - 1 and step == 2
            boxes = [] if background_only or b == 1 else [(0, 0, 3, 3)]
            targets.append({"boxes": boxes, "mask": (torch.rand(1, 6, 6, generator=g) > 0.5).float()})
        yield images, targets


def do_train(model, data, opt):
    for it, (images, targets) in enumerate(data):
        losses = model(images, targets)  # <- culprit
        total = sum(losses.values())
        opt.zero_grad()
        total.backward()  # <- culprit
        opt.step()
        if dist.get_rank() == 0:
            print(it, {k: round(v.item(), 3) for k, v in losses.items()}, flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Detector())
    do_train(model, loader(dist.get_rank(), dist.get_world_size()), torch.optim.SGD(model.parameters(), lr=0.02))
    dist.destroy_process_group()
