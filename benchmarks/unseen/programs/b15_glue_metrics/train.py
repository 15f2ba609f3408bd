import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metrics import evaluate


def splits(n=256, dim=12):
    gen = torch.Generator().manual_seed(6)
    x = torch.randn(n, dim, generator=gen)
    y = (x[:, 0] + x[:, 1] > 0).long()
    cut = n * 3 // 4
    return TensorDataset(x[:cut], y[:cut]), TensorDataset(x[cut:], y[cut:])


def training_function(args):
    accelerator = Accelerator(cpu=True)
    set_seed(args.seed)
    train_ds, val_ds = splits()
    train_dl = DataLoader(train_ds, batch_size=8, shuffle=True)
    val_dl = DataLoader(val_ds, batch_size=16)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    model, optimizer, train_dl, val_dl = accelerator.prepare(model, optimizer, train_dl, val_dl)
    for epoch in range(args.epochs):
        for x, y in train_dl:
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.is_main_process:
            acc = evaluate(accelerator, model, val_dl)
            print(f"epoch {epoch}: accuracy {acc:.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=42)
    training_function(p.parse_args())
