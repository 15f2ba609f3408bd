import lightning as L
import torch
import torchmetrics
from lightning.pytorch.utilities import rank_zero_only
from torch import nn


class Matcher(L.LightningModule):
    def __init__(self, dim=12, lr=0.01):
        super().__init__()
        self.lr = lr
        self.tower = nn.Sequential(nn.Linear(dim, 24), nn.ReLU(), nn.Linear(24, 3))
        self.val_acc = torchmetrics.classification.MulticlassAccuracy(num_classes=3)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.tower(x), y)
        self.log("loss", loss, sync_dist=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.val_acc.update(self.tower(x), y)

    @rank_zero_only
    def on_validation_epoch_end(self):
        acc = self.val_acc.compute()
        print(f"epoch {self.current_epoch}: accuracy {acc:.3f}")
        self.val_acc.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
