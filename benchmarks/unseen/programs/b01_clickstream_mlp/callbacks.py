import logging

import torch

log = logging.getLogger(__name__)


class Callback:
    def on_batch_end(self, trainer, loss):
        pass

    def on_epoch_end(self, trainer):
        pass


class LossMeter(Callback):
    def __init__(self):
        self.values = []

    def on_batch_end(self, trainer, loss):
        self.values.append(loss)

    def on_epoch_end(self, trainer):
        if trainer.rank == 0:
            log.info("epoch %d loss %.4f", trainer.epoch, sum(self.values) / len(self.values))
        self.values.clear()


class ReviveUnits(Callback):
    """Gives units of the first layer that never fire a second chance."""

    def __init__(self, layer, patience=8):
        self.layer = layer
        self.patience = patience
        self.silent = torch.zeros(layer.out_features)
        layer.register_forward_hook(self._watch)

    def _watch(self, module, args, out):
        fired = (out.detach() > 0).any(dim=0)
        self.silent = torch.where(fired, torch.zeros_like(self.silent), self.silent + 1)

    def on_batch_end(self, trainer, loss):
        stale = self.silent >= self.patience
        if stale.any():
            with torch.no_grad():
                fresh = torch.empty_like(self.layer.weight)
                torch.nn.init.kaiming_uniform_(fresh)
                self.layer.weight[stale] = fresh[stale]
                self.layer.bias[stale] = 0.1
            self.silent[stale] = 0
