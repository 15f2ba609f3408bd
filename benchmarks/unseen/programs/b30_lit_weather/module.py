from contextlib import contextmanager

import lightning as L
import torch
import torchmetrics
from torch import nn


class Forecaster(L.LightningModule):
    def __init__(self, window=12, horizon=4, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(window, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, horizon))
        self.mae = torchmetrics.MeanAbsoluteError()

    def forward(self, x):
        return self.net(x)

    @contextmanager
    def preview_mode(self):
        training = self.training
        self.eval()
        with torch.no_grad():
            yield
        self.train(training)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.smooth_l1_loss(self(x), y)
        if self.trainer.is_global_zero:
            self.log("fast_loss", loss, rank_zero_only=True)
        self.log("train_loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        out = self(x)
        self.mae.update(out, y)
        self.log("val_loss", nn.functional.smooth_l1_loss(out, y), sync_dist=True)

    def on_validation_epoch_end(self):
        mae = self.mae.compute()
        if self.trainer.is_global_zero:
            print(f"mae {mae:.4f}")
        self.mae.reset()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0, factor=0.5)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}
