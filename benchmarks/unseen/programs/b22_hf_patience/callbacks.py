from transformers import TrainerCallback


class LocalLossTracker:
    def __init__(self):
        self.values = []

    def push(self, value):
        self.values.append(value)

    def improved(self, window=8):
        if len(self.values) < 2 * window:
            return True
        recent = sum(self.values[-window:]) / window
        before = sum(self.values[-2 * window : -window]) / window
        return recent < before


class PatienceCallback(TrainerCallback):
    def __init__(self, tracker, patience=6):
        self.tracker = tracker
        self.patience = patience
        self.bad = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.bad = 0 if self.tracker.improved() else self.bad + 1
        if self.bad >= self.patience:
            control.should_training_stop = True
        return control
