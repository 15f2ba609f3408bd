import os
import tempfile
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pretrain import make_encoder, pretrain_encoder


def node_scratch():
    """Every process gets its own scratch folder from the batch system."""
    root = Path(os.environ.get("JOB_SCRATCH", tempfile.gettempdir()))
    return root / f"sensor-{os.environ['MASTER_PORT']}" / f"proc{os.environ['RANK']}"


def sensor_windows(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 9, generator=g)
    y = (x[:, :3].sum(1) > 0).long() + (x[:, 3:6].sum(1) > 0).long()
    return x, y


class WarmStart(Callback):
    def __init__(self, path):
        self.path = path

    def on_fit_start(self, trainer, pl_module):
        if not self.path.exists():
            return
        state = torch.load(self.path, map_location="cpu")
        pl_module.encoder.load_state_dict(state)
        print(f"[{trainer.global_rank}] encoder initialised from {self.path}")


class ActivityNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = make_encoder()
        self.head = nn.Linear(24, 3)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.head(self.encoder(x)), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        acc = (self.head(self.encoder(x)).argmax(1) == y).float().mean()
        self.log("val_acc", acc, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main():
    L.seed_everything(23)
    weights = node_scratch() / "encoder.pt"
    if os.environ["RANK"] == "0" and not weights.exists():
        unlabelled, _ = sensor_windows(512, seed=9)
        pretrain_encoder(unlabelled, weights)
    train = DataLoader(TensorDataset(*sensor_windows(384, 0)), batch_size=16, shuffle=True)
    val = DataLoader(TensorDataset(*sensor_windows(96, 1)), batch_size=16)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["WORLD_SIZE"]),
        max_epochs=3,
        callbacks=[WarmStart(weights)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(ActivityNet(), train, val)
    if trainer.is_global_zero:
        print("val_acc", float(trainer.callback_metrics["val_acc"]))


if __name__ == "__main__":
    main()
