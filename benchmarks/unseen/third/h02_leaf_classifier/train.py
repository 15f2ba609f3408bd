"""Leaf disease classifier: small CNN, decaying rate, gradient accumulation."""
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

from leaves import build_loaders

CFG = dict(seed=42, epochs=3, batch_size=12, lr=2e-3, accumulation=2, n_classes=4, size=16)


class LeafNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1),
            nn.GroupNorm(3, 12),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.GroupNorm(4, 24),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = nn.Linear(24, n_classes)

    def forward(self, images):
        return self.classifier(self.features(images).flatten(1))


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    hits, seen = 0, 0
    for images, labels in loader:
        preds = model(images).argmax(dim=-1)
        preds, labels = accelerator.gather_for_metrics((preds, labels))
        hits += (preds == labels).sum().item()
        seen += labels.numel()
    model.train()
    return hits / seen


def main():
    set_seed(CFG["seed"])
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=CFG["accumulation"])
    train_loader, val_loader = build_loaders(CFG)

    model = LeafNet(CFG["n_classes"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1.0 / (1.0 + update / 50))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    model, optimizer, val_loader, scheduler = accelerator.prepare(model, optimizer, val_loader, scheduler)

    for epoch in range(CFG["epochs"]):
        losses = []
        for images, labels in train_loader:
            with accelerator.accumulate(model):
                loss = criterion(model(images), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
        train_loss = accelerator.reduce(torch.stack(losses).mean(), reduction="mean")
        accuracy = evaluate(accelerator, model, val_loader)
        accelerator.print(f"epoch {epoch}: loss {train_loss.item():.4f} accuracy {accuracy:.3f}")

    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
