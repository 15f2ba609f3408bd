import os
import tempfile

import lightning as L

from modules.data import PairData
from modules.matcher import Matcher

OPTIONS = dict(
    accelerator="cpu",
    strategy="ddp",
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)

if __name__ == "__main__":
    L.seed_everything(31)
    trainer = L.Trainer(devices=int(os.environ["WORLD_SIZE"]), default_root_dir=tempfile.gettempdir(), **OPTIONS)
    trainer.fit(Matcher(), datamodule=PairData())
