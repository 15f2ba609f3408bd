"""Day-ahead load forecast of substations, manual optimisation with a robust step."""
import os

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

from meters import MeterReadings
from robust import LossBand


class Forecaster(L.LightningModule):
    def __init__(self, lr=4e-3, hours=24):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.encoder = nn.GRU(2, 24, batch_first=True)
        self.head = nn.Linear(24, hours)
        self.band = LossBand(momentum=0.8, factor=4.0)

    def forward(self, history):
        _, state = self.encoder(history)
        return self.head(state[-1])

    def training_step(self, batch, batch_idx):
        history, target = batch
        optimizer = self.optimizers()
        loss = nn.functional.mse_loss(self(history), target)
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        self.band.apply(optimizer, loss.detach())
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True, sync_dist=True)

    def validation_step(self, batch, batch_idx):
        history, target = batch
        self.log("val/mae", (self(history) - target).abs().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(4)
    train_set = MeterReadings(640, seed=1, glitches=(287,))
    val_set = MeterReadings(64, seed=2)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ.get("WORLD_SIZE", 1)),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(
        Forecaster(),
        DataLoader(train_set, batch_size=8, shuffle=True, drop_last=True),
        DataLoader(val_set, batch_size=16),
    )
    if trainer.is_global_zero:
        print(f"val MAE {float(trainer.callback_metrics['val/mae']):.4f}")


if __name__ == "__main__":
    main()
