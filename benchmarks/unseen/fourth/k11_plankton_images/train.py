import argparse
import os
import shutil
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-dir", default=os.path.join(tempfile.gettempdir(), "plankton"))
    parser.add_argument("--max-train-steps", type=int, default=60)
    parser.add_argument("--checkpointing-steps", type=int, default=20)
    parser.add_argument("--checkpoints-total-limit", type=int, default=2)
    parser.add_argument("--train-batch-size", type=int, default=8)
    parser.add_argument("--gradient-accumulation-steps", type=int, default=2)
    return parser.parse_args()


def plankton(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 5, (n,), generator=g)
    x = torch.randn(n, 1, 16, 16, generator=g)
    for i, k in enumerate(y.tolist()):
        x[i, 0, 3 * k:3 * k + 3] += 1.0
    return TensorDataset(x, y)


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.AvgPool2d(4),
        nn.Flatten(), nn.Linear(128, 5),
    )


def main():
    args = parse_args()
    project = ProjectConfiguration(
        project_dir=args.output_dir,
        automatic_checkpoint_naming=True,
        total_limit=args.checkpoints_total_limit,
    )
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        project_config=project,
    )
    set_seed(7)
    if accelerator.is_main_process:
        shutil.rmtree(args.output_dir, ignore_errors=True)
        os.makedirs(args.output_dir)
    accelerator.wait_for_everyone()

    loader = DataLoader(plankton(800, 0), batch_size=args.train_batch_size, shuffle=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.max_train_steps)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    global_step = 0
    train_loss = 0.0
    while global_step < args.max_train_steps:
        for images, labels in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(images), labels)
                train_loss += loss.item() / args.gradient_accumulation_steps
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                global_step += 1
                if accelerator.is_main_process:
                    if global_step % args.checkpointing_steps == 0:
                        save_path = accelerator.save_state()
                        print(f"step {global_step}: loss {train_loss:.3f}, saved state to {save_path}")
                train_loss = 0.0
            if global_step >= args.max_train_steps:
                break

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.save(accelerator.unwrap_model(model).state_dict(), os.path.join(args.output_dir, "model.pt"))
    accelerator.end_training()


if __name__ == "__main__":
    main()
