import os

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, DistributedSampler

NO_GROWTH = {13}


class PlateImages(Dataset):
    """One large plate per item, with the centres of its colonies."""

    def __init__(self, n_plates, size=48):
        self.size = size
        self.plates = []
        for i in range(n_plates):
            g = torch.Generator().manual_seed(1000 + i)
            n = 0 if i in NO_GROWTH else int(torch.randint(2, 9, (1,), generator=g))
            centres = torch.randint(4, size - 4, (n, 2), generator=g)
            self.plates.append(centres)

    def __len__(self):
        return len(self.plates)

    def __getitem__(self, i):
        centres = self.plates[i]
        image = torch.zeros(1, self.size, self.size)
        for r, c in centres.tolist():
            image[0, r - 2:r + 3, c - 2:c + 3] = 1.0
        g = torch.Generator().manual_seed(i)
        return image + 0.1 * torch.randn(image.shape, generator=g), centres


def collate(items):
    return torch.stack([image for image, _ in items]), [centres for _, centres in items]


class ColonyDetector(L.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2), nn.ReLU(),
            nn.Conv2d(width, width, 5, padding=2), nn.ReLU(),
        )
        self.score = nn.Conv2d(width, 1, 1)

    def forward(self, images):
        return self.score(self.body(images)).squeeze(1)

    def heatmap_loss(self, scores, centres):
        target = torch.zeros_like(scores)
        target[centres[:, 0], centres[:, 1]] = 1.0
        weight = 1.0 + target * (target.numel() / len(centres))
        return F.binary_cross_entropy_with_logits(scores, target, weight)

    def training_step(self, batch, batch_idx):
        images, centres = batch
        losses = []
        for scores, points in zip(self(images), centres):
            if len(points) > 0:
                losses.append(self.heatmap_loss(scores, points))
        if not losses:
            return None
        loss = torch.stack(losses).mean()
        self.log("train_loss", loss)
        return loss

    def train_dataloader(self):
        plates = PlateImages(36)
        sampler = DistributedSampler(plates, self.trainer.world_size, self.trainer.global_rank, shuffle=False)
        return DataLoader(plates, batch_size=1, sampler=sampler, collate_fn=collate)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    L.seed_everything(0)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["WORLD_SIZE"]),
        max_epochs=3,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(ColonyDetector())
    if trainer.is_global_zero:
        print("train loss", float(trainer.callback_metrics["train_loss"]))


if __name__ == "__main__":
    main()
