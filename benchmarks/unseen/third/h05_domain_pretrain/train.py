"""Continued pre-training of a tiny GPT-2 on domain documents with a token budget."""
import os
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from budget import TokenBudget
from documents import Collator, Documents


class PretrainTrainer(Trainer):
    def __init__(self, *args, budget=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.budget = budget
        self.add_callback(budget)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        if model.training:
            self.budget.count(inputs["attention_mask"])
        return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)


def build_model():
    config = GPT2Config(
        vocab_size=128,
        n_positions=48,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    return GPT2LMHeadModel(config)


def main():
    set_seed(17)
    args = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), f"pretrain_{os.environ['MASTER_PORT']}"),
        use_cpu=True,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=8,
        max_steps=60,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_num_workers=0,
        remove_unused_columns=False,
        seed=17,
    )
    trainer = PretrainTrainer(
        model=build_model(),
        args=args,
        train_dataset=Documents(800, seed=1),
        eval_dataset=Documents(48, seed=2),
        data_collator=Collator(pad_id=0),
        budget=TokenBudget(limit=2750),
    )
    trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(f"perplexity {torch.tensor(metrics['eval_loss']).exp().item():.2f}")
    trainer.save_model()


if __name__ == "__main__":
    main()
