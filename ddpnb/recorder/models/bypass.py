"""Detect a wrapped model, or a part of it, that is called without its wrapper: DDP then does not synchronise, without a warning."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.nn.modules import module as nn_module
from torch.nn.parallel import DistributedDataParallel

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.models.samples import Samples
from ddpnb.recorder.models.tracked_model import Watched
from ddpnb.recorder.models.tracked_models import Followed
from ddpnb.recorder.stacks.user_frames import calling_frame, is_user_file


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
        self._compiles = False
        self._parts: dict[int, Watched] = {}  # by the id of a module inside of a wrapper

    def begin(self) -> None:
        """Watch for direct calls of the module, until the wrapper is used."""
        wrapped = ((watched, getattr(ddp, "module", None)) for ddp, watched in list(self._models.watched.items()))
        self._parts = {
            id(part): watched for watched, module in wrapped if module is not None for part in module.modules()
        }
        known = hasattr(DistributedDataParallel, "_active_ddp_module")  # else every forward looks like a direct call
        if self.hook is None and self._parts and known and not self._compiles:
            self.hook = nn_module.register_module_forward_pre_hook(self._on_any_forward)

    def end(self) -> None:
        """A direct call was seen, or the wrapper is used: stop watching."""
        self._parts = {}
        if self.hook is not None:
            self.hook.remove()
            self.hook = None

    def compiles(self, *_: Any, **__: Any) -> None:
        """The program compiles: what torch makes of a module warns about hooks on all modules, so there are none from here on."""
        self._compiles = True
        self.end()

    def _on_any_forward(self, module: Any, _inputs: Any) -> None:
        try:
            if (
                self._box.silent
                or not torch.is_grad_enabled()
                or DistributedDataParallel._active_ddp_module is not None
                or not module.training
            ):
                return
            watched = self._parts.get(id(module))
            if watched is not None and not watched.bypass_site:
                watched.bypass_site = self._samples.site(self._caller())
                self.end()
        except Exception:
            self._fail()

    def _caller(self) -> FrameType | None:
        """The innermost frame of the user's outside of the model's own methods: these are right inside of the wrapper."""
        frame = innermost = calling_frame()
        while frame is not None:
            if is_user_file(frame.f_code.co_filename) and id(frame.f_locals.get("self")) not in self._parts:
                return frame
            frame = frame.f_back
        return innermost
