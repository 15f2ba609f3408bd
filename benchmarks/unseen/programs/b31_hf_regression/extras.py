import time

import torch
from transformers import TrainerCallback


class WriterCallback(TrainerCallback):
    def __init__(self):
        self.lines = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs and "eval_mse" in logs:
            self.lines.append(f"step {state.global_step}: mse {logs['eval_mse']:.4f}")
            print(self.lines[-1])


class SlowDisk(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if args.process_index == 1 and state.global_step % 10 == 0:
            time.sleep(0.15)


class StopWhenGood(TrainerCallback):
    """Ends the run once the goal is reached."""

    def __init__(self, goal):
        self.goal = goal

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        control.should_training_stop |= metrics["eval_mse"] < self.goal
        return control


def compute_metrics(pred):
    diff = torch.tensor(pred.predictions).squeeze(-1) - torch.tensor(pred.label_ids)
    return {"mse": diff.square().mean().item()}
