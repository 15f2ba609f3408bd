import os
import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader, TensorDataset

from callbacks import PreviewForecast, ReportWriter
from module import Forecaster


def windows(station, n=120):
    gen = torch.Generator().manual_seed(station)
    phase = torch.rand(n, 1, generator=gen) * 6.28
    series = torch.sin(phase + torch.arange(16) * 0.4)
    return TensorDataset(series[:, :12], series[:, 12:])


def main():
    rank = int(os.environ["RANK"])
    with tempfile.TemporaryDirectory() as tmp:
        sample = windows(99)[0][0][None]
        trainer = L.Trainer(
            accelerator="cpu",
            devices=int(os.environ["WORLD_SIZE"]),
            strategy="ddp",
            max_epochs=4,
            callbacks=[
                ReportWriter(f"{tmp}/report.json"),
                PreviewForecast(sample),
                EarlyStopping("val_loss", patience=1, min_delta=0.02),
            ],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            default_root_dir=tmp,
        )
        L.seed_everything(1000 + rank, verbose=False)
        trainer.fit(
            Forecaster(),
            DataLoader(windows(rank), 10, shuffle=True),
            DataLoader(windows(50 + rank, 40), 10),
        )


if __name__ == "__main__":
    main()
