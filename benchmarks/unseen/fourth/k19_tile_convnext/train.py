import json
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import (
    ConvNextConfig,
    ConvNextForImageClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from callbacks import JsonLog, WarmupFreeze


class LandTiles(Dataset):
    def __init__(self, n, seed, size=16):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 3, (n,), generator=g)
        self.pixels = 0.3 * torch.randn(n, 3, size, size, generator=g)
        self.pixels[torch.arange(n), self.labels] += 0.5

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"pixel_values": self.pixels[i], "labels": self.labels[i]}


def compute_metrics(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, -1) == prediction.label_ids).mean())}


def shared_folder(args):
    folder = [tempfile.mkdtemp(prefix="tiles-") if args.process_index == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    return folder[0]


def main():
    args = TrainingArguments(
        output_dir="unset",
        use_cpu=True,
        ddp_backend="gloo",
        num_train_epochs=6,
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        report_to="none",
        disable_tqdm=True,
    )
    args.output_dir = shared_folder(args)
    set_seed(args.seed)
    model = ConvNextForImageClassification(
        ConvNextConfig(patch_size=4, num_stages=2, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3)
    )
    with args.main_process_first(desc="tiles"):
        train_set, eval_set = LandTiles(203, 0), LandTiles(61, 1)
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        compute_metrics=compute_metrics,
        callbacks=[
            EarlyStoppingCallback(early_stopping_patience=1),
            JsonLog(os.path.join(args.output_dir, "log.jsonl")),
            WarmupFreeze(steps=5),
        ],
    )
    trainer.train()
    predictions = trainer.predict(eval_set)
    trainer.save_model(os.path.join(args.output_dir, "final"))
    if trainer.is_world_process_zero():
        with open(os.path.join(args.output_dir, "predictions.json"), "w") as f:
            json.dump(np.argmax(predictions.predictions, -1).tolist(), f)
        print("stopped at epoch", trainer.state.epoch, predictions.metrics["test_accuracy"])


if __name__ == "__main__":
    main()
