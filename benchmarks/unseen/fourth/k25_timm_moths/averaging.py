import copy

import torch
from timm.utils import ModelEmaV3


class AveragedEval:
    """Keeps the moving average of the weights, scores it on the held-out moths and exports the best."""

    def __init__(self, model, path, decay=0.95):
        self.ema = ModelEmaV3(model, decay=decay)
        self.path = path
        self.best = 0.0

    def update(self, model):
        self.ema.update(model)

    @torch.no_grad()
    def score(self, model, loader):
        model.eval()
        hits = total = 0
        for images, labels in loader:
            hits += int((model(images).argmax(1) == labels).sum())
            total += len(labels)
        return hits / total

    def run(self, model, loader, epoch):
        backup = copy.deepcopy(model.state_dict())
        model.load_state_dict(self.ema.module.state_dict())
        top1 = self.score(model, loader)
        print(f"epoch {epoch}: averaged model top-1 {top1:.3f} (best {self.best:.3f})")
        if top1 <= self.best:
            return self.best
        self.best = top1
        torch.save(model.state_dict(), self.path)
        model.load_state_dict(backup)
        return self.best
