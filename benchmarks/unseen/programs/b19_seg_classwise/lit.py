from collections import defaultdict

import lightning as L
import torch
from torch import nn

from data import CLASSES


class TileClassifier(L.LightningModule):
    def __init__(self, lr=0.02):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, len(CLASSES)))
        self.hits = defaultdict(list)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        pred = self.net(x).argmax(1)
        for k in y.unique().tolist():
            self.hits[CLASSES[k]].append((pred[y == k] == k).float().mean())

    def on_validation_epoch_end(self):
        scores = {f"acc/{name}": torch.stack(v).mean() for name, v in sorted(self.hits.items())}
        self.log_dict(scores, sync_dist=True)
        self.log("acc/mean", torch.stack(list(scores.values())).mean(), sync_dist=True)
        self.hits.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
