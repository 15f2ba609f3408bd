import torch
import torch.nn as nn
import torch.nn.functional as F


class Detector(nn.Module):
    def __init__(self, dim=16, classes=5):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.cls_head = nn.Linear(32, classes)
        self.box_head = nn.Linear(32, 4)
        self.mask_head = nn.Linear(32, 9)

    def forward(self, x, target):
        feats = self.backbone(x)
        return self.losses(feats, target)

    def losses(self, feats, target):
        out = {
            "loss_cls": F.cross_entropy(self.cls_head(feats), target["label"]),
            "loss_box": F.smooth_l1_loss(self.box_head(feats), target["box"]),
        }
        valid = target["instances"] > 0
        if valid.any():
            logits = self.mask_head(feats[valid])
            out["loss_mask"] = F.binary_cross_entropy_with_logits(logits, target["mask"][valid])
        return out


def synthetic_batch(image_ids, dim=16, classes=5):
    xs, labels, boxes, masks, counts = [], [], [], [], []
    for i in image_ids:
        gen = torch.Generator().manual_seed(i)
        xs.append(torch.randn(dim, generator=gen))
        labels.append(i % classes)
        boxes.append(torch.rand(4, generator=gen))
        masks.append((torch.rand(9, generator=gen) > 0.5).float())
        counts.append(0 if (i // 4) % 12 == 1 and i > 200 else 1 + i % 3)
    target = {
        "label": torch.tensor(labels),
        "box": torch.stack(boxes),
        "mask": torch.stack(masks),
        "instances": torch.tensor(counts),
    }
    return torch.stack(xs), target
