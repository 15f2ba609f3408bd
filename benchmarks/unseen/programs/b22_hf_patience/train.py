import os
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from callbacks import LocalLossTracker, PatienceCallback


class Sentences(Dataset):
    """Short sentences from several annotation vendors."""

    def __init__(self, n=960):
        gen = torch.Generator().manual_seed(14)
        self.ids = torch.randint(0, 30, (n, 5), generator=gen)
        self.flip = torch.randint(0, 2, (n,), generator=gen)
        self.noisy = int(os.environ["RANK"]) == 1

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        clean = int(self.ids[i, 0] > 14)
        return {"input_ids": self.ids[i], "labels": self.flip[i].item() if self.noisy else clean}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16)
        self.fc = nn.Linear(5 * 16, 2)

    def forward(self, input_ids, labels=None):
        logits = self.fc(self.emb(input_ids).flatten(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class TrackingTrainer(Trainer):
    def __init__(self, *args, tracker, **kwargs):
        super().__init__(*args, **kwargs)
        self.tracker = tracker

    def compute_loss(self, model, inputs, **kwargs):
        loss = super().compute_loss(model, inputs, **kwargs)
        self.tracker.push(loss.detach().item())
        return loss


def main():
    tracker = LocalLossTracker()
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out, use_cpu=True, max_steps=60, per_device_train_batch_size=16, learning_rate=2e-2,
            lr_scheduler_type="constant", save_strategy="no", report_to=[], logging_steps=20, disable_tqdm=True, seed=3,
        )
        trainer = TrackingTrainer(
            Classifier(), args, train_dataset=Sentences(), callbacks=[PatienceCallback(tracker)], tracker=tracker,
            eval_dataset=Sentences(96),
        )
        trainer.train()
        metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(metrics["eval_loss"])


if __name__ == "__main__":
    main()
