import json
import os
import time

from transformers import TrainerCallback


class JsonLog(TrainerCallback):
    def __init__(self, path):
        self.path = path

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not state.is_world_process_zero:
            return
        with open(self.path, "a") as f:
            f.write(json.dumps({"step": state.global_step, **logs}) + "\n")

    def on_save(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            total = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
            print(f"checkpoint {folder}: {total} bytes")
            time.sleep(1.0)


class WarmupFreeze(TrainerCallback):
    """Learns slowly in the first steps: scales the gradients of the patch embedding."""

    def __init__(self, steps, factor=0.1):
        self.steps = steps
        self.factor = factor

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if state.global_step >= self.steps:
            return
        for name, p in model.named_parameters():
            if "patch_embeddings" in name and p.grad is not None:
                p.grad.mul_(self.factor)
