"""The module: training, and validation with the recall of the rare kind."""
import lightning as L
import torch
from torch import nn
from torch.nn import functional as F

CRACK = 2


class DefectModule(L.LightningModule):
    def __init__(self, lr, n_kinds=3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.defect = nn.Linear(64, 1)
        self.kind = nn.Linear(64, n_kinds)

    def forward(self, images):
        features = self.body(self.stem(images)).flatten(1)
        return self.defect(features).squeeze(-1), self.kind(features)

    def losses(self, batch):
        images, defect, kind = batch
        defect_logit, kind_logits = self(images)
        loss = F.binary_cross_entropy_with_logits(defect_logit, defect.float())
        return loss + F.cross_entropy(kind_logits, kind), kind_logits

    def training_step(self, batch, batch_idx):
        loss, _ = self.losses(batch)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, kind_logits = self.losses(batch)
        kind = batch[2]
        hits = (kind_logits.argmax(dim=-1) == kind).float()
        self.log("val/loss", loss, sync_dist=True)
        self.log("val/accuracy", hits.mean(), sync_dist=True)
        cracks = kind == CRACK
        if cracks.any():
            self.log("val/crack_recall", hits[cracks].mean(), sync_dist=True, batch_size=int(cracks.sum()))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
