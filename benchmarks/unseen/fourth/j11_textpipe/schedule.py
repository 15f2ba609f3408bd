"""All micro batches forward through the stages, then all of them back."""
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Config:
    batch: int
    micro: int
    dim: int
    length: int

    @property
    def n_micro(self):
        return self.batch // self.micro


class Pipeline:
    def __init__(self, stage, cfg, rank, world):
        self.stage, self.cfg = stage, cfg
        self.rank = rank
        self.first, self.last = rank == 0, rank == world - 1

    def _source(self, tokens):
        if self.first:
            yield from tokens.split(self.cfg.micro)
            return
        for _ in range(self.cfg.n_micro):
            act = torch.empty(self.cfg.micro, self.cfg.length, self.cfg.dim)
            dist.recv(act, self.rank - 1)
            yield act.requires_grad_()

    def _forward(self, tokens):
        done = []
        for x in self._source(tokens):
            out = self.stage(x)
            if not self.last:
                dist.send(out.detach(), self.rank + 1)
            done.append((x, out))
        return done

    def _backward(self, x, out, target):
        loss = None
        if self.last:
            loss = (out - target).pow(2).mean() / self.cfg.n_micro
            loss.backward()
        else:
            grad = torch.empty_like(out)
            dist.recv(grad, self.rank + 1)
            out.backward(grad)
        if not self.first:
            dist.send(x.grad, self.rank - 1)
        return 0.0 if loss is None else loss.item()

    def step(self, tokens, target):
        done = self._forward(tokens)
        pieces = target.split(self.cfg.micro)
        return sum(self._backward(x, out, t) for (x, out), t in zip(done, pieces))
