"""Keyword spotting on synthetic log-mel clips with a small GRU."""
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from reporting import ConfusionReport

CLASSES = ["yes", "no", "up", "down", "stop", "go"]


class SpotterNet(nn.Module):
    def __init__(self, n_mels=20, hidden=32, n_classes=len(CLASSES)):
        super().__init__()
        self.norm = nn.LayerNorm(n_mels)
        self.rnn = nn.GRU(n_mels, hidden, batch_first=True)
        self.head = nn.Linear(hidden, n_classes)

    def forward(self, mels):
        out, _ = self.rnn(self.norm(mels))
        return self.head(out.mean(dim=1))


def synthetic_clips(n=480, frames=24, n_mels=20):
    g = torch.Generator().manual_seed(7)
    labels = torch.randint(len(CLASSES), (n,), generator=g)
    templates = torch.randn(len(CLASSES), frames, n_mels, generator=g)
    mels = templates[labels] + 0.8 * torch.randn(n, frames, n_mels, generator=g)
    return TensorDataset(mels, labels)


@torch.no_grad()
def validate(accelerator, model, loader, criterion):
    model.eval()
    total = torch.zeros(2)
    logits_all, labels_all = [], []
    for mels, labels in loader:
        logits = model(mels)
        total += torch.tensor([criterion(logits, labels).item(), 1.0])
        logits_all.append(logits)
        labels_all.append(labels)
    total = accelerator.reduce(total, reduction="sum")
    model.train()
    return (total[0] / total[1]).item(), torch.cat(logits_all), torch.cat(labels_all)


def main():
    set_seed(13)
    accelerator = Accelerator(cpu=True)
    train_set, val_set = random_split(synthetic_clips(), [384, 96])
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=8)

    model = SpotterNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    model, optimizer, train_loader, val_loader = accelerator.prepare(
        model, optimizer, train_loader, val_loader
    )
    report = ConfusionReport(accelerator, CLASSES)

    for epoch in range(3):
        running = 0.0
        for mels, labels in train_loader:
            loss = criterion(model(mels), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
            running += loss.item()
        val_loss, logits, labels = validate(accelerator, model, val_loader, criterion)
        accelerator.print(f"epoch {epoch} train {running / len(train_loader):.3f} val {val_loss:.3f}")
        report.write(epoch, logits, labels)

    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
