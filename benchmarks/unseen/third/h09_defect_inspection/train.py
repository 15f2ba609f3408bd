"""Surface inspection: one small CNN, two heads (defect or not, and its kind)."""
import os

import lightning as L
import torch
from torch.utils.data import DataLoader

from inspection import DefectModule
from plates import PlateImages


class PlateData(L.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train_set = PlateImages(192, seed=1, cracked=range(0, 192, 6))
        # line 4 delivered a single cracked plate in the hold-out week
        self.val_set = PlateImages(48, seed=2, cracked=[10])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)


def main():
    L.seed_everything(11)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ.get("WORLD_SIZE", 1)),
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    model = DefectModule(lr=3e-3)
    trainer.fit(model, datamodule=PlateData())
    if trainer.is_global_zero:
        print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
