"""Move wrapped models from a destroyed process group to the new one.

``DistributedDataParallel`` can be pickled, and rebuilds itself on the default group when it is
unpickled (``__setstate__``): its parameters, settings and hooks stay. That is done here in place.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpnb.texts import shortened

_OF_A_GROUP = ("process_group", "reducer", "logger")


class Orphans:
    """The wrapped models of the default group, remembered while there is none."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[Any]] = []

    def remember(self) -> None:
        """Before the default group is destroyed."""
        if not dist.is_initialized():
            return
        group = dist.group.WORLD
        models = [model for model in gc.get_objects() if issubclass(type(model), DistributedDataParallel)]
        known = {id(model()) for model in self._models}
        self._models += [
            weakref.ref(model)
            for model in models
            if model.__dict__.get("process_group") is group and id(model) not in known
        ]

    def forget(self) -> None:
        self._models.clear()

    def adopt(self) -> list[str]:
        """Move all live models to the new default group; returns the failures as text."""
        troubles: list[str] = []
        for reference in self._models:
            model = reference()
            if model is None:
                continue
            try:
                _rebind(model)
            except Exception as error:
                troubles.append(shortened(f"{type(model.module).__name__} must be wrapped again: {error}", 300))
        self._models.clear()
        return troubles

    def __len__(self) -> int:
        return sum(model() is not None for model in self._models)


def _rebind(model: Any) -> None:
    state = {name: value for name, value in model.__dict__.items() if name not in _OF_A_GROUP}
    model.reducer = None  # its hooks on the parameters go with it
    model.__setstate__(state)
