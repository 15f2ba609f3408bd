import os
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from callbacks import TokenBudget

BLOCK = 24
VOCAB = 96


class Recipes(Dataset):
    """Token blocks with a periodic structure, as the tokenised recipes have."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        start = torch.randint(0, VOCAB, (n, 1), generator=g)
        step = torch.randint(1, 4, (n, 1), generator=g)
        self.ids = (start + step * torch.arange(BLOCK)) % VOCAB

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def build_model():
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=BLOCK, n_embd=32, n_layer=1, n_head=2,
        bos_token_id=0, eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def main():
    set_seed(13)
    world = int(os.environ["WORLD_SIZE"])
    batch = 8
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="recipe-lm-"),
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch,
        max_steps=40,
        learning_rate=2e-3,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    budget = TokenBudget(budget=18 * batch * BLOCK * world, tokens_per_step=batch * BLOCK)
    trainer = Trainer(
        model=build_model(),
        args=args,
        train_dataset=Recipes(1600, 0),
        eval_dataset=Recipes(96, 1),
        callbacks=[budget],
    )
    trainer.train()
    trainer.accelerator.wait_for_everyone()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        print("eval loss", round(metrics["eval_loss"], 3), "after", trainer.state.global_step, "steps")


if __name__ == "__main__":
    main()
