"""Faults in the model and its optimizer."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpnb.engine.faults.struck import Strikes


class InModel(Strikes):
    """The faults that strike a wrapped model."""

    def install(self) -> None:
        self.before(DistributedDataParallel, "forward", self._before_forward)

    def _before_forward(self, ddp: DistributedDataParallel, *_args: object, **_kwargs: object) -> None:
        for armed in self.due("perturb parameter"):
            with torch.no_grad():
                next(ddp.module.parameters()).view(-1)[0] += float(armed.fault.value("amount"))
