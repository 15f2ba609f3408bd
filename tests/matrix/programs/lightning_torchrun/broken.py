# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: 1
# outcome: hang
# expect: DDP301
# culprits: 1
# remedy: trainer.save_checkpoint()
"""Lightning's Trainer under torchrun, with a checkpoint by hand after training, on rank 0 only."""

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
        self.log("val_loss", loss, sync_dist=True)

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
    if trainer.is_global_zero:
        trainer.save_checkpoint("last.ckpt")  # <- culprit


if __name__ == "__main__":
    main()
