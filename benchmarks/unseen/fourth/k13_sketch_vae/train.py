import argparse
import os
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset

from model import SketchVAE


class Sketches(Dataset):
    def __init__(self, n, size=12, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.images = torch.zeros(n, 1, size, size)
        for image in self.images:
            r, c = torch.randint(1, size - 1, (2,), generator=g).tolist()
            image[0, r, :c] = 1.0
            image[0, :r, c] = 1.0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i]


def beta_at(step, warmup=40):
    return min(1.0, step / warmup)


def train(accelerator, model, optimizer, loader, epochs):
    step = 0
    for epoch in range(epochs):
        seen = torch.zeros(2)
        for images in loader:
            loss, parts = accelerator.unwrap_model(model).training_loss(images, beta_at(step))
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
            seen += torch.stack([parts["rec"], parts["kl"]])
            step += 1
        rec, kl = (accelerator.reduce(seen, reduction="mean") / len(loader)).tolist()
        accelerator.print(f"epoch {epoch}: rec {rec:.2f} kl {kl:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(19)
    loader = DataLoader(Sketches(480), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = SketchVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    train(accelerator, model, optimizer, loader, args.epochs)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        vae = accelerator.unwrap_model(model)
        path = os.path.join(tempfile.mkdtemp(prefix="sketch-vae-"), "vae.pt")
        accelerator.save({"state": vae.state_dict(), "samples": vae.sample(4)}, path)
        print("saved to", path)
    accelerator.end_training()


if __name__ == "__main__":
    main()
