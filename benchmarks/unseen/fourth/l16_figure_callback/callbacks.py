import os

import torch.distributed as dist


class Callback:
    def on_epoch_end(self, trainer):
        pass


class LossHistory(Callback):
    def __init__(self):
        self.values = []

    def on_epoch_end(self, trainer):
        self.values.append(trainer.last_loss)


class FigureWriter(Callback):
    """Draws a few samples per epoch; nobody goes on before the files are there."""

    def __init__(self, folder, samples, per_epoch=3):
        self.folder, self.per_epoch = folder, per_epoch
        self.queue = list(samples)

    def take(self):
        taken, self.queue = self.queue[:self.per_epoch], self.queue[self.per_epoch:]
        return taken

    def draw(self, trainer, samples):
        for i in samples:
            row = trainer.predict(i)
            path = os.path.join(self.folder, f"epoch{trainer.epoch}_{i}.txt")
            with open(path, "w") as f:
                f.write(" ".join(f"{v:.3f}" for v in row))

    def on_epoch_end(self, trainer):
        if trainer.is_main:
            samples = self.take()
            if len(samples) == 0:
                return
            self.draw(trainer, samples)
        dist.barrier()
