import logging

import torch
import torch.nn.functional as F

log = logging.getLogger("engine")


class ActivationBudget:
    """Rough guard against sequences that do not fit on the device."""

    def __init__(self, max_elements):
        self.max_elements = max_elements

    def check(self, batch):
        tokens, _ = batch
        need = tokens.numel() * tokens.size(1)
        if need > self.max_elements:
            raise RuntimeError(f"out of memory: tried to allocate {need * 4} bytes")


class Engine:
    def __init__(self, model, optimizer, budget, grad_clip=1.0):
        self.model = model
        self.optimizer = optimizer
        self.budget = budget
        self.grad_clip = grad_clip
        self.skipped = 0

    def forward_loss(self, batch):
        tokens, labels = batch
        self.budget.check(batch)
        logits = self.model(tokens)
        return F.cross_entropy(logits, labels)

    def run_epoch(self, loader):
        self.model.train()
        running = 0.0
        steps = 0
        for batch in loader:
            self.optimizer.zero_grad(set_to_none=True)
            try:
                loss = self.forward_loss(batch)
            except RuntimeError as err:
                if "out of memory" not in str(err):
                    raise
                log.warning("skipping batch with %d tokens", batch[0].numel())
                self.skipped += 1
                continue
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
            self.optimizer.step()
            running += loss.item()
            steps += 1
        return running / max(steps, 1)
