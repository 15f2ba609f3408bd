# command: python broken.py
# plain: hang
# outcome: hang
# expect: DDP302
# sides: 0 | 1
# remedy: self.log(..., sync_dist=True)
"""Lightning's Trainer with its own launcher: a metric is averaged over the ranks, but logged on rank 0 only."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        if self.trainer.is_global_zero:  # <- culprit
            self.log("val_loss", loss, sync_dist=True)  # <- culprit

    def on_validation_epoch_end(self):
        if self.trainer.is_global_zero and not self.trainer.sanity_checking:
            print(f"epoch {self.current_epoch}: validated")

    def on_train_epoch_end(self):
        if self.trainer.is_global_zero:
            print(f"epoch {self.current_epoch}: loss {self.trainer.callback_metrics['val_loss'].item():.6f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    L.seed_everything(1)
    x = torch.randn(64, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, log_every_n_steps=1, enable_progress_bar=False
    )
    trainer.fit(Regression(), DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8))


if __name__ == "__main__":
    main()
