# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: 1
# outcome: crash or hang
# expect: DDP301
# culprits: 1
# remedy: trainer.evaluate()
"""The Trainer of transformers with a small BERT: training, then an evaluation on rank 0 only."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(0, 100, (count, 16), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[0] % 2}


def main():
    set_seed(1)
    config = BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    arguments = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        max_steps=8,
        logging_steps=4,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=1,
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Sentences(64), eval_dataset=Sentences(32))
    trainer.train()
    if trainer.is_world_process_zero():
        metrics = trainer.evaluate()  # <- culprit
        print(f"end: loss {metrics['eval_loss']:.6f}")


if __name__ == "__main__":
    main()
