import math
import tempfile

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

from data import LENGTH, VOCAB, Dialogues, load_dialogues, preview, split


def build_model():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
        )
    )


def main():
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="dialogue-"),
        use_cpu=True,
        ddp_backend="gloo",
        seed=37,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        learning_rate=3e-3,
        warmup_steps=5,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    set_seed(args.seed)

    rows = load_dialogues()
    if args.process_index == 0:
        preview(rows)
    train_rows, eval_rows = split(rows, n_train=480, n_eval=96)

    trainer = Trainer(
        model=build_model(),
        args=args,
        train_dataset=Dialogues(train_rows),
        eval_dataset=Dialogues(eval_rows),
    )
    trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print("perplexity", round(math.exp(metrics["eval_loss"]), 2))


if __name__ == "__main__":
    main()
