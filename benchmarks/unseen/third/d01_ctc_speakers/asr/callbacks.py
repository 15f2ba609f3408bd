import math


class Callback:
    def on_epoch_end(self, trainer, logs):
        pass


class History(Callback):
    def __init__(self):
        self.rows = []

    def on_epoch_end(self, trainer, logs):
        self.rows.append(dict(logs))
        if trainer.rank == 0:
            print("epoch %(epoch)d stage %(stage)s train %(train_loss).4f" % logs, flush=True)


class EarlyStopping(Callback):
    def __init__(self, monitor, patience=2, min_delta=1e-3):
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.best = math.inf
        self.wait = 0

    def on_epoch_end(self, trainer, logs):
        score = logs[self.monitor]
        if score < self.best - self.min_delta:
            self.best, self.wait = score, 0
            return
        self.wait += 1
        if self.wait >= self.patience:
            trainer.stop_training = True
