import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForTokenClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

from schedule import HalveOnPlateau

LABELS = ["O", "B-CHARGE", "I-CHARGE"]
VOCAB = 150


class CourtRecords(Dataset):
    def __init__(self, n, seed, length=16):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(4, VOCAB, (n, length), generator=g)
        self.labels = torch.zeros_like(self.ids)
        self.labels[self.ids % 7 == 0] = 1
        inside = torch.roll(self.ids, 1, dims=1) % 7 == 0
        inside[:, 0] = False
        self.labels[inside & (self.labels == 0)] = 2
        noise = torch.rand(self.ids.shape, generator=g) < 0.05
        self.labels[noise] = 0

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {
            "input_ids": self.ids[i],
            "attention_mask": torch.ones_like(self.ids[i]),
            "labels": self.labels[i],
        }


def accuracy(prediction):
    pred = prediction.predictions.argmax(-1)
    return {"accuracy": float((pred == prediction.label_ids).mean())}


def main():
    set_seed(29)
    model = DistilBertForTokenClassification(
        DistilBertConfig(
            vocab_size=VOCAB, dim=32, hidden_dim=64, n_layers=1, n_heads=2,
            max_position_embeddings=32, num_labels=len(LABELS), dropout=0.1,
        )
    )
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="charge-tagger-"),
        use_cpu=True,
        ddp_backend="gloo",
        num_train_epochs=3,
        per_device_train_batch_size=16,
        learning_rate=4e-3,
        lr_scheduler_type="constant",
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=CourtRecords(640, 0),
        eval_dataset=CourtRecords(96, 1),
        compute_metrics=accuracy,
        callbacks=[HalveOnPlateau()],
    )
    trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print({k: round(v, 4) for k, v in metrics.items() if k in ("eval_loss", "eval_accuracy")})


if __name__ == "__main__":
    main()
