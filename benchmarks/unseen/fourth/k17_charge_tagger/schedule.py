from transformers import TrainerCallback


class HalveOnPlateau(TrainerCallback):
    """Halves the learning rate when the logged loss stops improving by `min_gain` (relative)."""

    def __init__(self, min_gain=0.25, floor=1e-4):
        self.min_gain = min_gain
        self.floor = floor
        self.best = None

    def on_log(self, args, state, control, logs=None, optimizer=None, lr_scheduler=None, **kwargs):
        if not state.is_world_process_zero or "loss" not in (logs or {}):
            return
        loss = logs["loss"]
        if self.best is None or loss < self.best * (1 - self.min_gain):
            self.best = loss if self.best is None else min(loss, self.best)
            return
        for i, group in enumerate(optimizer.param_groups):
            lr = max(self.floor, lr_scheduler.base_lrs[i] * 0.5)
            lr_scheduler.base_lrs[i] = lr
            group["lr"] = lr
        print(f"step {state.global_step}: loss {loss:.4f}, learning rate now {lr:.2e}")
