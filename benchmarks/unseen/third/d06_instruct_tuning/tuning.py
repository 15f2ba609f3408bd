import logging

import torch
import torch.nn.functional as F

from dialogs import IGNORE

log = logging.getLogger("tuning")


def answer_loss(logits, labels):
    logits, labels = logits[:, :-1], labels[:, 1:]
    answered = (labels != IGNORE).any(dim=1)
    if not answered.all():
        raise ValueError(f"{int((~answered).sum())} dialogs without an answer in the window")
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)


class Tuner:
    def __init__(self, model, optimizer, scheduler):
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.bad = []

    def micro(self, tokens, labels):
        loss = answer_loss(self.model(tokens), labels)
        loss.backward()
        return loss.item()

    def epoch(self, loader):
        losses = []
        for index, (tokens, labels) in enumerate(loader):
            self.optimizer.zero_grad()
            try:
                losses.append(self.micro(tokens, labels))
            except ValueError as err:
                log.info("batch %d left out: %s", index, err)
                self.bad.append(index)
                continue
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
        return sum(losses) / len(losses)
