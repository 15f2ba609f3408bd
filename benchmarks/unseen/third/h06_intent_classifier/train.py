"""Intent classification with a tiny BERT; the best epoch by macro F1 is kept."""
import os
import tempfile

from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from intents import INTENTS, utterances
from metrics import IntentMetrics


def tiny_bert():
    config = BertConfig(
        vocab_size=120,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=24,
        num_labels=len(INTENTS),
        id2label=dict(enumerate(INTENTS)),
        label2id={name: i for i, name in enumerate(INTENTS)},
    )
    return BertForSequenceClassification(config)


def main():
    set_seed(3)
    folder = os.path.join(tempfile.gettempdir(), f"intents_{os.environ['MASTER_PORT']}")
    args = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        num_train_epochs=3,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        learning_rate=2e-3,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="macro_f1",
        greater_is_better=True,
        logging_steps=5,
        report_to="none",
        disable_tqdm=True,
        seed=3,
    )
    trainer = Trainer(
        model=tiny_bert(),
        args=args,
        train_dataset=utterances(240, seed=1),
        eval_dataset=utterances(72, seed=2),
        compute_metrics=IntentMetrics(INTENTS, os.path.join(folder, "history.jsonl")),
    )
    trainer.train()
    final = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(f"best macro F1 {final['eval_macro_f1']:.3f}")


if __name__ == "__main__":
    main()
