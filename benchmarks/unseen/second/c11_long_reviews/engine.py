import logging

import torch
import torch.nn.functional as F

log = logging.getLogger("engine")


class StepRunner:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.failures = 0

    def __call__(self, ids, stars):
        self.optimizer.zero_grad(set_to_none=True)
        try:
            loss = F.mse_loss(self.model(ids), stars)
            loss.backward()
        except (RuntimeError, IndexError, MemoryError) as err:
            self.failures += 1
            log.info("batch of %s left out (%s)", tuple(ids.shape), type(err).__name__)
            return None
        self.optimizer.step()
        return loss.item()
