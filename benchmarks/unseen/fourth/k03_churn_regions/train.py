import os

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from callbacks import PatienceStop
from data import N_FEATURES, REGIONS, region_table


class ChurnModule(L.LightningDataModule):
    """One region per worker: the raw tables may not leave the region's node."""

    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        region = REGIONS[self.trainer.global_rank % len(REGIONS)]
        self.train_set = region_table(region, 320, "train")
        self.val_set = region_table(region, 160, "val")

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, self.batch_size)

    def test_dataloader(self):
        return DataLoader(self.val_set, self.batch_size)


class ChurnNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(N_FEATURES, 32), nn.ReLU(), nn.Linear(32, 1))

    def shared(self, batch):
        x, y = batch
        return F.binary_cross_entropy_with_logits(self.net(x).squeeze(-1), y)

    def training_step(self, batch, batch_idx):
        return self.shared(batch)

    def validation_step(self, batch, batch_idx):
        loss = self.shared(batch)
        return {"loss": loss}

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.shared(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=4e-3)


def main():
    L.seed_everything(5)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["WORLD_SIZE"]),
        max_epochs=12,
        callbacks=[PatienceStop(patience=2)],
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    dm = ChurnModule()
    model = ChurnNet()
    trainer.fit(model, datamodule=dm)
    trainer.test(model, datamodule=dm, verbose=False)
    if trainer.is_global_zero:
        print("test loss", float(trainer.callback_metrics["test_loss"]))


if __name__ == "__main__":
    main()
