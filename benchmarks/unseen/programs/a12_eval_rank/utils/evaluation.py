import torch


class Evaluator:
    def __init__(self, loader, every=1):
        self.loader = loader
        self.every = every
        self.best = 0.0

    @torch.inference_mode()
    def accuracy(self, model):
        was_training = model.training
        model.eval()
        good = total = 0
        for x, y in self.loader:
            good += (model(x).argmax(1) == y).sum().item()
            total += y.numel()
        model.train(was_training)
        return good / total

    def on_epoch_end(self, trainer, epoch):
        if not trainer.roles.is_evaluator or epoch % self.every:
            return
        acc = self.accuracy(trainer.model)
        self.best = max(self.best, acc)
        print(f"[eval] epoch {epoch}: {acc:.3f} (best {self.best:.3f})", flush=True)
