import logging
import os
import tempfile

import lightning as L

from data import loader
from lit import TileClassifier

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def main():
    L.seed_everything(4)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        default_root_dir=tempfile.gettempdir(),
    )
    trainer.fit(TileClassifier(), loader("train"), loader("val"))
    if trainer.is_global_zero:
        print({k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
