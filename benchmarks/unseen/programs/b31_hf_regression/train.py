import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from extras import SlowDisk, StopWhenGood, WriterCallback, compute_metrics


class Houses(Dataset):
    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 8, generator=gen)
        self.y = self.x @ torch.linspace(-1, 1, 8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"features": self.x[i], "labels": self.y[i]}


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, features, labels=None):
        out = self.net(features)
        loss = None if labels is None else nn.functional.mse_loss(out.squeeze(-1), labels)
        return {"loss": loss, "logits": out}


def main():
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out, use_cpu=True, max_steps=60, eval_strategy="steps", eval_steps=15,
            per_device_train_batch_size=8, per_device_eval_batch_size=7, gradient_accumulation_steps=2,
            learning_rate=2e-2, save_strategy="no", report_to=[], logging_steps=30, disable_tqdm=True,
        )
        callbacks = [StopWhenGood(0.2), SlowDisk()]
        if args.process_index == 0:
            callbacks.append(WriterCallback())
        trainer = Trainer(
            Regressor(), args, train_dataset=Houses(1500, 0), eval_dataset=Houses(101, 1),
            compute_metrics=compute_metrics, callbacks=callbacks,
        )
        trainer.train()
        final = trainer.evaluate()
        if trainer.is_world_process_zero():
            trainer.model.cpu()
            torch.save(trainer.model.state_dict(), f"{out}/final.pt")
            print(f"stopped at {trainer.state.global_step}, mse {final['eval_mse']:.4f}")
        trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
