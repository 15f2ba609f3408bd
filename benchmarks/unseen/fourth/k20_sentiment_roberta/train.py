import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import (
    RobertaConfig,
    RobertaForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Tweets(Dataset):
    def __init__(self, n, seed, length=12, vocab=100):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, vocab, (n, length), generator=g)
        self.labels = (self.ids.float().mean(1) > (vocab + 5) / 2).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {
            "input_ids": self.ids[i],
            "attention_mask": torch.ones_like(self.ids[i]),
            "labels": self.labels[i],
        }


class JobLimits(TrainerCallback):
    """The head process watches the clock and the stop file; the decision is taken together."""

    def __init__(self, seconds, stop_file, every=5):
        self.seconds = seconds
        self.stop_file = stop_file
        self.every = every

    def on_train_begin(self, args, state, control, **kwargs):
        self.started = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every != 0:
            return control
        flag = torch.zeros(1)
        if state.is_world_process_zero:
            over = time.monotonic() - self.started > self.seconds
            flag.fill_(float(over or os.path.exists(self.stop_file)))
        dist.broadcast(flag, src=0)
        if flag.item() > 0:
            control.should_training_stop = True
        return control


class WeightedTrainer(Trainer):
    """Counts the hard examples of every process and weights the loss by the class."""

    hard_examples = 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(**inputs)
        weight = torch.tensor([1.0, 1.5])
        loss = torch.nn.functional.cross_entropy(outputs.logits, labels, weight=weight)
        if model.training:
            wrong = outputs.logits.argmax(-1) != labels
            if wrong.any():
                self.hard_examples += int(wrong.sum())
        return (loss, outputs) if return_outputs else loss


def main():
    set_seed(41)
    out = tempfile.mkdtemp(prefix="sentiment-")
    args = TrainingArguments(
        output_dir=out,
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=60,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=2e-3,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    model = RobertaForSequenceClassification(
        RobertaConfig(
            vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=20, num_labels=2,
        )
    )
    trainer = WeightedTrainer(
        model=model,
        args=args,
        train_dataset=Tweets(640, 0),
        eval_dataset=Tweets(100, 1),
        callbacks=[JobLimits(seconds=4.0, stop_file=os.path.join(out, "stop"))],
    )
    trainer.train()
    metrics = trainer.evaluate()
    counts = [torch.zeros(1) for _ in range(args.world_size)] if args.process_index == 0 else None
    dist.gather(torch.tensor([float(trainer.hard_examples)]), counts, dst=0)
    if trainer.is_world_process_zero():
        print("steps", trainer.state.global_step, "eval loss", round(metrics["eval_loss"], 3))
        print("hard examples per process", [int(c) for c in counts])


if __name__ == "__main__":
    main()
