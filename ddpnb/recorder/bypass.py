"""Detect a wrapped model that is called without its wrapper: DDP then does not synchronise, without a warning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as nn_module
from torch.nn.parallel import DistributedDataParallel

from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.samples import Samples
from ddpnb.recorder.tracked_models import Followed


class Bypass:
    """A hook on all modules, until one is called without its wrapper.

    Args:
        box: tells when this process is no rank any more.
        models: those that are followed.
        samples: gives the line a number.
        fail: called when the hook fails.
    """

    def __init__(self, box: BlackBox, models: Followed, samples: Samples, fail: Callable[[], None]) -> None:
        self._box = box
        self._models = models
        self._samples = samples
        self._fail = fail
        self.hook: Any = None

    def begin(self) -> None:
        """Watch for direct calls of the module, until the wrapper is used."""
        if self.hook is None:
            self.hook = nn_module.register_module_forward_pre_hook(self._on_any_forward)

    def end(self) -> None:
        """A direct call was seen, or the wrapper is used: stop watching."""
        if self.hook is not None:
            self.hook.remove()
            self.hook = None

    def _on_any_forward(self, module: Any, _inputs: Any) -> None:
        try:
            if (
                self._box.silent
                or not torch.is_grad_enabled()
                or DistributedDataParallel._active_ddp_module is not None
                or not module.training
            ):
                return
            for ddp, watched in list(self._models.watched.items()):
                if getattr(ddp, "module", None) is module and not watched.bypass_site:
                    watched.bypass_site = self._samples.site()
                    self.end()
        except Exception:
            self._fail()
