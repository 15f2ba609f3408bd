"""Star ratings from reviews: DistilBERT body, new head, EMA weights for the evaluation."""
import os
import tempfile

import torch
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from callbacks import AverageWeights, ExampleSheet, FreshHead
from reviews import Reviews, score


def main():
    set_seed(29)
    folder = os.path.join(tempfile.gettempdir(), f"stars_{os.environ['MASTER_PORT']}")
    args = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        num_train_epochs=6,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        average_tokens_across_devices=False,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="mae",
        greater_is_better=False,
        logging_steps=4,
        report_to="none",
        disable_tqdm=True,
        seed=29,
    )
    config = DistilBertConfig(
        vocab_size=150, dim=32, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=24, num_labels=5
    )
    average = AverageWeights(decay=0.9)
    trainer = Trainer(
        model=DistilBertForSequenceClassification(config),
        args=args,
        train_dataset=Reviews(203, seed=1),
        eval_dataset=Reviews(61, seed=2),
        compute_metrics=score,
        callbacks=[
            FreshHead(seed=5),
            average,
            ExampleSheet(folder),
            EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=0.02),
        ],
    )
    trainer.train()
    average.copy_to(trainer.model)
    final = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(f"MAE of the averaged weights {final['eval_mae']:.3f}")
        with open(os.path.join(folder, "final.txt"), "w") as handle:
            handle.write(f"{final['eval_mae']:.4f}\n")
    torch.distributed.barrier()


if __name__ == "__main__":
    main()
