import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from features import N_MELS, Utterances


class SpeakerNet(nn.Module):
    def __init__(self, n_speakers=8, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * N_MELS, width), nn.ReLU(), nn.Linear(width, width))
        self.classes = nn.Parameter(torch.randn(n_speakers, width))

    def forward(self, x, labels=None, margin=0.2, scale=8.0):
        cosine = F.normalize(self.body(x), dim=-1) @ F.normalize(self.classes, dim=-1).T
        if labels is None:
            return cosine
        cosine = cosine - margin * F.one_hot(labels, len(self.classes))
        return F.cross_entropy(scale * cosine, labels)


def run_epoch(accelerator, model, optimizer, loader):
    model.train()
    losses = []
    for features, labels in loader:
        loss = model(features, labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
    set_seed(1)
    train_set = Utterances(365)
    test_set = Utterances(100, seed=0)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size)
    model = SpeakerNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(args.epochs):
        loss = run_epoch(accelerator, model, optimizer, train_loader)
        loss = accelerator.gather(loss.unsqueeze(0)).mean()
        accelerator.print(f"epoch {epoch} loss {loss.item():.3f}")
    if accelerator.is_main_process:
        net = accelerator.unwrap_model(model).eval()
        with torch.no_grad():
            hits = sum(int((net(x).argmax(1) == y).sum()) for x, y in test_loader)
        print("accuracy", hits / len(test_set))
    accelerator.end_training()


if __name__ == "__main__":
    main()
