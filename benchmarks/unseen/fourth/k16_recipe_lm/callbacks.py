import time

from transformers import TrainerCallback


class TokenBudget(TrainerCallback):
    """Reports the throughput and ends the run when the paid number of tokens is used up."""

    def __init__(self, budget, tokens_per_step, report_every=5):
        self.budget = budget
        self.tokens_per_step = tokens_per_step
        self.report_every = report_every

    def on_train_begin(self, args, state, control, **kwargs):
        self.used = 0
        self.started = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return control
        self.used += self.tokens_per_step * args.world_size
        if state.global_step % self.report_every == 0:
            rate = self.used / (time.perf_counter() - self.started)
            print(f"step {state.global_step}: {self.used} tokens, {rate:.0f} tokens/s")
        if self.used >= self.budget:
            control.should_training_stop = True
        return control
