import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Fitter:
    def __init__(self, model, lr):
        self.model = model
        self.optim = torch.optim.SGD(model.parameters(), lr=lr)
        self.plateau = ReduceLROnPlateau(self.optim, factor=0.3, patience=2, threshold=1e-4)

    def _train(self, building, epoch):
        self.model.train()
        for x, y in building.batches(epoch):
            loss = F.mse_loss(self.model(x), y)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()

    @torch.no_grad()
    def _score(self, building):
        self.model.eval()
        x, y = building.valid
        return F.mse_loss(self.model.module(x), y).item()

    def epoch(self, building, epoch):
        self._train(building, epoch)
        score = self._score(building)
        self.plateau.step(score)
        return score
