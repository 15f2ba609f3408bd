import torch
from torch import nn


class ConvStem(nn.Module):
    def __init__(self, width=8, classes=5):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))


def train_one_epoch(model, loader, optimizer, criterion):
    model.train()
    total, seen = 0.0, 0
    for images, target in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), target)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(images)
        seen += len(images)
    return total / max(seen, 1)


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    total, correct, seen = 0.0, 0, 0
    for images, target in loader:
        logits = model(images)
        total += criterion(logits, target).item() * len(images)
        correct += (logits.argmax(1) == target).sum().item()
        seen += len(images)
    return {"val_loss": total / seen, "val_acc": correct / seen}
