import os
import tempfile

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from callbacks import KeepBest


def load_series(n_days, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n_days * 24, dtype=torch.float32)
    load = 50 + 10 * torch.sin(t / 24 * 6.283) + 4 * torch.sin(t / 168 * 6.283)
    load = load + torch.randn(len(t), generator=g)
    return (load - load.mean()) / load.std()


def windows(series, history=48, horizon=12, stride=6):
    xs, ys = [], []
    for start in range(0, len(series) - history - horizon, stride):
        xs.append(series[start:start + history])
        ys.append(series[start + history:start + history + horizon])
    return TensorDataset(torch.stack(xs).unsqueeze(-1), torch.stack(ys))


class Forecaster(L.LightningModule):
    def __init__(self, hidden=16, horizon=12):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, horizon)

    def forward(self, x):
        _, h = self.gru(x)
        return self.out(h[-1])

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.huber_loss(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_mae", (self(x) - y).abs().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


def main():
    L.seed_everything(3)
    out = os.path.join(tempfile.gettempdir(), "load_forecast_ckpt")
    train = DataLoader(windows(load_series(60, 0)), batch_size=16, shuffle=True)
    val = DataLoader(windows(load_series(20, 1)), batch_size=16)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["WORLD_SIZE"]),
        max_epochs=4,
        gradient_clip_val=1.0,
        callbacks=[KeepBest(out)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Forecaster(), train, val)
    if trainer.is_global_zero:
        print("done, val_mae", float(trainer.callback_metrics["val_mae"]))


if __name__ == "__main__":
    main()
