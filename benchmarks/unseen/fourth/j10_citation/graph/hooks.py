from collections import defaultdict

from .score import validation_accuracy


class Hooks:
    def __init__(self):
        self.table = defaultdict(list)

    def on(self, event, fn, every=1):
        self.table[event].append((fn, every))

    def emit(self, event, **info):
        for fn, every in self.table[event]:
            if (info.get("epoch", 0) + 1) % every == 0:
                fn(**info)


def default_hooks(hooks, model, g, lead):
    losses = []
    hooks.on("epoch_end", lambda epoch, loss: losses.append(loss))
    if not lead:
        return

    def show(epoch, loss):
        acc = validation_accuracy(model.module, g)
        print(f"epoch {epoch} loss {loss:.4f} valid {acc:.3f}", flush=True)

    hooks.on("epoch_end", show, every=5)
    hooks.on("train_end", lambda: print(f"last loss {losses[-1]:.4f}", flush=True))
