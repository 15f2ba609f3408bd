"""Stops a run when the tokens that were paid for are used up."""
from transformers import TrainerCallback


class TokenBudget(TrainerCallback):
    def __init__(self, limit):
        self.limit = limit
        self.used = 0

    @property
    def left(self):
        return max(self.limit - self.used, 0)

    def count(self, attention_mask):
        self.used += int(attention_mask.sum())

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs is not None:
            logs["tokens_left"] = self.left

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= not self.left
        return control
