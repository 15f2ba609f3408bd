class Callback:
    def on_epoch_end(self, trainer, epoch, logs):
        pass


class ConsoleLogger(Callback):
    def on_epoch_end(self, trainer, epoch, logs):
        print(f"epoch {epoch}: " + ", ".join(f"{k}={v:.4f}" for k, v in logs.items()), flush=True)


class Patience(Callback):
    def __init__(self, monitor="val_loss", patience=2, min_delta=1e-3):
        self.monitor, self.patience, self.min_delta = monitor, patience, min_delta
        self.best = float("inf")
        self.bad = 0

    def on_epoch_end(self, trainer, epoch, logs):
        if logs[self.monitor] < self.best - self.min_delta:
            self.best, self.bad = logs[self.monitor], 0
            return
        self.bad += 1
        if self.bad >= self.patience:
            trainer.should_stop = True


def default_callbacks(rank):
    table = {0: [ConsoleLogger(), Patience()]}
    return table.get(rank, [])
