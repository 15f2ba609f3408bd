import argparse
import os

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from data import CLASSES, FundusPatches


class SmallUNet(nn.Module):
    def __init__(self, width, n_classes):
        super().__init__()
        self.enc1 = nn.Conv2d(3, width, 3, padding=1)
        self.enc2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.head = nn.Conv2d(2 * width, n_classes, 1)

    def forward(self, x):
        a = F.relu(self.enc1(x))
        b = F.relu(self.enc2(F.max_pool2d(a, 2)))
        return self.head(torch.cat([a, self.up(b)], 1))


class Segmenter(L.LightningModule):
    def __init__(self, width=8, lr=1e-3, stats_every=5):
        super().__init__()
        self.save_hyperparameters()
        self.net = SmallUNet(width, len(CLASSES))

    def forward(self, x):
        return self.net(x)

    def class_scores(self, logits, masks):
        pred = logits.argmax(1)
        scores = {}
        for c, name in enumerate(CLASSES):
            inter = ((pred == c) & (masks == c)).sum()
            union = ((pred == c) | (masks == c)).sum().clamp(min=1)
            scores[f"train_iou/{name}"] = inter / union
        return scores

    def training_step(self, batch, batch_idx):
        images, masks = batch
        logits = self(images)
        loss = F.cross_entropy(logits, masks)
        self.log("train_loss", loss, prog_bar=True)
        if self.trainer.is_global_zero and batch_idx % self.hparams.stats_every == 0:
            scores = self.class_scores(logits.detach(), masks)
            self.log_dict(scores, on_step=True, on_epoch=False, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, masks = batch
        loss = F.cross_entropy(self(images), masks)
        self.log("val_loss", loss, sync_dist=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)
        return {"optimizer": opt, "lr_scheduler": sched}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    L.seed_everything(17)
    train = DataLoader(FundusPatches(192, 0), args.batch_size, shuffle=True)
    val = DataLoader(FundusPatches(48, 1), args.batch_size)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["WORLD_SIZE"]),
        max_epochs=args.epochs,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Segmenter()
    trainer.fit(model, train, val)
    if trainer.is_global_zero:
        print("final val loss", float(trainer.callback_metrics["val_loss"]))


if __name__ == "__main__":
    main()
