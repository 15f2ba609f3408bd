"""One forward of a wrapped model, module by module: digests of what each one gives."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules import module as nn_module

from ddpnb.engine.blackbox import BlackBox
from ddpnb.engine.digests import exact
from ddpnb.engine.hooks import Hooks

_MODULES = 5000


class Tracing(Hooks):
    """Traces the forward of one turn of one model, when asked to; costs nothing otherwise."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__(box)
        self._wanted: dict[int, int] = {}  # model -> turn
        self._names: dict[int, str] = {}
        self.traced: dict[int, dict[str, Any]] = {}

    def install(self) -> None:
        """Nothing until somebody asks."""

    def new_run(self) -> None:
        super().new_run()
        self.remove()
        self._wanted.clear()
        self.traced.clear()

    def arm(self, model: int, turn: int) -> None:
        """Trace this turn, if it is still to come."""
        self.traced.pop(model, None)
        self._wanted[model] = turn

    def begin(self, model: int, turn: int, module: Any) -> None:
        """A forward begins: called for every one, so the common case comes first."""
        if not self._wanted or turn < self._wanted.get(model, 1 << 60):
            return
        del self._wanted[model]
        self._names = {id(part): name or "(model)" for name, part in module.named_modules()}
        found: list[list[Any]] = []
        self.traced[model] = {"turn": turn, "done": False, "modules": found}

        def look(part: Any, _inputs: Any, output: Any) -> None:
            name = self._names.get(id(part))
            if name is None:
                return
            if len(found) < _MODULES:
                found.append([name, type(part).__name__, _digest(output)])
            if part is module:
                self.traced[model]["done"] = True
                self.remove()

        self.on_removal(nn_module.register_module_forward_hook(self.guarded(look)).remove)


def _digest(value: Any) -> int:
    """Of the tensors in an output, one number."""
    if isinstance(value, torch.Tensor):
        return exact(value.detach())
    total = 7
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for part in list(parts)[:32]:
        total = (total * 31 + _digest(part)) & 0xFFFFFFFFFFFFFFFF
    return total
