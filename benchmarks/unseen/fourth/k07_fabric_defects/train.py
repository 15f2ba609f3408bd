import os
import time

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from evaluate import evaluate


def surface_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    x = torch.randn(n, 1, 20, 20, generator=g)
    for i, k in enumerate(y.tolist()):
        x[i, 0, 5 * k:5 * k + 3, :] += 2.0
    return TensorDataset(x, y)


def build_model():
    def block(cin, cout):
        return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())

    return nn.Sequential(
        block(1, 8), nn.MaxPool2d(2), block(8, 16), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 25, 4),
    )


class Trainer:
    def __init__(self, fabric, model, optimizer, train_loader, val_loader, eval_every=8):
        self.fabric = fabric
        self.model = model
        self.optimizer = optimizer
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.eval_every = eval_every
        self.step = 0
        self.started = time.time()

    def train_epoch(self):
        for images, labels in self.train_loader:
            loss = F.cross_entropy(self.model(images), labels)
            self.fabric.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
            if self.fabric.is_global_zero and self.step % self.eval_every == 0:
                acc = evaluate(self.model, self.val_loader)
                print(f"step {self.step} loss {loss.item():.3f} acc {acc:.3f} {time.time() - self.started:.1f}s")

    def fit(self, epochs):
        self.model.train()
        for _ in range(epochs):
            self.train_epoch()
        self.fabric.barrier()


def main():
    fabric = L.Fabric(accelerator="cpu", strategy="ddp", devices=int(os.environ["WORLD_SIZE"]))
    fabric.launch()
    fabric.seed_everything(31)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    model, optimizer = fabric.setup(model, optimizer)
    train_loader = fabric.setup_dataloaders(DataLoader(surface_images(384, 0), batch_size=8, shuffle=True))
    val_loader = DataLoader(surface_images(96, 1), batch_size=16)
    Trainer(fabric, model, optimizer, train_loader, val_loader).fit(epochs=2)


if __name__ == "__main__":
    main()
