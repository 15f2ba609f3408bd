"""One forward of a wrapped model, looked at closely when asked: all its tensors, and what each module gives.

Ranks that train are never at the same place at the same time; a turn that all are about to make is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.stacks.digests import exact

_MODULES = 5000


class Tracing(Hooks):
    """Looks at the forward of one turn of one model, when asked to; costs nothing otherwise."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__(box)
        self.wanted: dict[int, tuple[int, bool]] = {}  # model -> (forward, results module by module)
        self._names: dict[int, str] = {}
        self.traced: dict[int, dict[str, Any]] = {}

    def install(self) -> None:
        """Inactive until ``arm``."""

    def new_run(self) -> None:
        super().new_run()
        self.remove()
        self.wanted.clear()
        self.traced.clear()

    def arm(self, model: int, turn: int, modules: bool) -> None:
        """Look at this turn, if it is still to come."""
        self.traced.pop(model, None)
        self.wanted[model] = turn, modules

    def begin(self, model: int, turn: int, module: Any, tensors: Callable[[], Any]) -> None:
        """A forward begins, while ``wanted`` is not empty."""
        if turn < self.wanted.get(model, (1 << 60, False))[0]:
            return
        _, modules = self.wanted.pop(model)
        row = self.traced[model] = {"turn": turn, "done": not modules, "modules": [], **tensors()}
        if modules:
            self._follow(row, module)

    def _follow(self, row: dict[str, Any], module: Any) -> None:
        # Keeps the row itself: a new request, on another thread, takes it out of ``traced``.
        self._names = {id(part): name or "(model)" for name, part in module.named_modules()}
        modules: list[list[Any]] = row["modules"]
        root = id(module)  # not the module: the hook stays if its forward fails

        def look(part: Any, _inputs: Any, output: Any) -> None:
            name = self._names.get(id(part))
            if name is None:
                return
            if len(modules) < _MODULES:
                modules.append([name, type(part).__name__, digest_of(output)])
            if id(part) == root:
                row["done"] = True
                self.remove()

        self.on_removal(nn_module.register_module_forward_hook(self.guarded(look)).remove)


def digest_of(value: Any) -> int:
    """One digest of all tensors in an output."""
    if isinstance(value, torch.Tensor):
        return exact(value.detach())
    total = 7
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for part in list(parts)[:32]:
        total = (total * 31 + digest_of(part)) & 0xFFFFFFFFFFFFFFFF
    return total
