import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from data import PAD, VOCAB, Reviews, collate


class BagOfWords(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.ff = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 2))

    def forward(self, input_ids):
        mask = (input_ids != PAD).unsqueeze(-1)
        pooled = (self.emb(input_ids) * mask).sum(1) / mask.sum(1)
        return self.ff(pooled)


def evaluate(accelerator, model, loader):
    model.eval()
    correct = total = 0
    for batch in loader:
        with torch.no_grad():
            pred = model(batch["input_ids"]).argmax(-1)
        pred, labels = accelerator.gather_for_metrics((pred, batch["labels"]))
        correct += int((pred == labels).sum())
        total += len(labels)
    model.train()
    return correct / total


def train(accelerator, args, model, optimizer, scheduler, train_loader, eval_loader):
    total = args.epochs * len(train_loader)
    progress_bar = tqdm(range(total), disable=not accelerator.is_main_process, mininterval=5)
    best = 0.0
    for epoch in range(args.epochs):
        model.train()
        for batch in train_loader:
            loss = F.cross_entropy(model(batch["input_ids"]), batch["labels"])
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            progress_bar.update(1)
            if progress_bar.n > 0 and progress_bar.n % args.eval_steps == 0:
                accuracy = evaluate(accelerator, model, eval_loader)
                best = max(best, accuracy)
                accelerator.print(f"step {progress_bar.n}: accuracy {accuracy:.3f} (best {best:.3f})")
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--eval-steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(42)
    train_loader = DataLoader(Reviews(400, 0), args.batch_size, shuffle=True, collate_fn=collate)
    eval_loader = DataLoader(Reviews(90, 1), args.batch_size, collate_fn=collate)
    model = BagOfWords()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=200)
    model, optimizer, scheduler, train_loader, eval_loader = accelerator.prepare(
        model, optimizer, scheduler, train_loader, eval_loader
    )
    best = train(accelerator, args, model, optimizer, scheduler, train_loader, eval_loader)
    accelerator.wait_for_everyone()
    accelerator.print("best accuracy", best)
    accelerator.end_training()


if __name__ == "__main__":
    main()
