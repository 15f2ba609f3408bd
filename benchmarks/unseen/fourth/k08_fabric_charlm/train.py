import os
import tempfile
import time
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from corpus import CharCorpus, write_corpus


class CharLM(nn.Module):
    def __init__(self, vocab, width=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def sample(module, start, n):
    ids = [start]
    with torch.no_grad():
        for _ in range(n):
            logits = module(torch.tensor([ids]))[0, -1]
            ids.append(int(logits.argmax()))
    return ids


def train(fabric, model, optimizer, loader, corpus, accumulate, max_steps):
    running = torch.zeros(())
    micro = steps = 0
    while steps < max_steps:
        for x, y in loader:
            micro += 1
            last = micro % accumulate == 0
            with fabric.no_backward_sync(model, enabled=not last):
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
                fabric.backward(loss / accumulate)
            running += loss.detach()
            if not last:
                continue
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps % 10 == 0:
                mean = fabric.all_reduce(running / (10 * accumulate))
                running = torch.zeros(())
                if fabric.is_global_zero:
                    text = "".join(corpus.chars[i] for i in sample(model.module, 3, 40))
                    print(f"step {steps} loss {float(mean):.3f} | {text}")
            if steps == max_steps:
                return


def main():
    fabric = L.Fabric(accelerator="cpu", strategy="ddp", devices=int(os.environ["WORLD_SIZE"]))
    fabric.launch()
    fabric.seed_everything(4)
    out = fabric.broadcast(tempfile.mkdtemp(prefix="charlm-") if fabric.is_global_zero else None)
    path = Path(out) / "corpus.txt"
    with fabric.rank_zero_first():
        if not path.exists():
            write_corpus(path)
            time.sleep(1.0)
    corpus = CharCorpus(path)
    loader = fabric.setup_dataloaders(DataLoader(corpus, batch_size=8, shuffle=True, drop_last=True))
    model = CharLM(len(corpus.chars))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model, optimizer = fabric.setup(model, optimizer)
    train(fabric, model, optimizer, loader, corpus, accumulate=2, max_steps=40)
    fabric.save(Path(out) / "last.ckpt", {"model": model, "optimizer": optimizer})
    if fabric.is_global_zero:
        print("saved", (Path(out) / "last.ckpt").stat().st_size)


if __name__ == "__main__":
    main()
