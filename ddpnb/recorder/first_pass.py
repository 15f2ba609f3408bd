"""The first forward and backward of a model, module by module: digests of outputs, and of gradients before they are reduced.

Only where the environment asks for it (``protocol.MODULES``).
"""

from __future__ import annotations

from collections import Counter
from struct import pack
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.digests import exact
from ddpnb.recorder.hooks import Hooks
from ddpnb.recorder.inputs import whole
from ddpnb.recorder.samples import Samples
from ddpnb.recorder.tracing import digest_of
from ddpnb.recorder.tracked_model import Watched

_ROW = 100  # names in one row: the text of a row's names is limited
_MOST = 30 * _ROW  # the launcher keeps the first rows
_DIGITS = (1 << 48) - 1  # a double holds so many bits


class FirstPass(Hooks):
    """Follows the first forward and backward of each wrapped model."""

    def __init__(self, box: BlackBox, samples: Samples) -> None:
        super().__init__(box)
        self._samples = samples
        self._gradients: dict[int, tuple[list[tuple[str, float]], list[Any]]] = {}  # model -> gradients, hooks

    def install(self) -> None:
        """Inactive until a model runs for the first time."""

    def new_run(self) -> None:
        super().new_run()
        self.remove()
        self._gradients.clear()

    def forward(self, watched: Watched, module: Any) -> None:
        """The first forward begins."""
        self._follow_outputs(watched, module)
        found: list[tuple[str, float]] = []
        handles: list[Any] = []
        seen: set[str] = set()
        self._gradients[watched.number] = found, handles

        def follow(name: str, parameter: Any) -> None:
            def look(gradient: Any) -> None:
                if len(found) < _MOST and name not in seen:
                    seen.add(name)
                    found.append((name, float(exact(gradient.detach()) & _DIGITS)))

            handle = parameter.register_hook(self.guarded(look))
            handles.append(handle)
            self.on_removal(handle.remove)

        for name, parameter in zip(watched.names, watched.parameters, strict=False):
            if parameter is not None and parameter.requires_grad:
                follow(name, parameter)

    def backward_is_over(self, watched: Watched) -> None:
        """An optimizer steps, or the next forward begins."""
        found, handles = self._gradients.pop(watched.number, ([], []))
        for handle in handles:
            handle.remove()
        self._write(watched, "local", found)

    def _follow_outputs(self, watched: Watched, module: Any) -> None:
        names = {id(part): name or "(model)" for name, part in module.named_modules()}
        calls: Counter[str] = Counter()
        found: list[tuple[str, float]] = []
        root = id(module)  # not the module: the hooks stay if its forward fails

        def look(part: Any, _inputs: Any, output: Any) -> None:
            name = names.get(id(part))
            if name is None or torch.compiler.is_compiling():
                return
            calls[name] += 1
            again = f" #{calls[name]}" if calls[name] > 1 else ""
            if len(found) < _MOST:
                found.append((f"{name} ({type(part).__name__}){again}", float(digest_of(output) & _DIGITS)))
            if id(part) == root:
                handle.remove()
                self._write(watched, "outputs", found)

        def look_at_inputs(_module: Any, inputs: Any, kwargs: Any) -> None:
            before.remove()
            found.append(("inputs", whole(inputs, kwargs)))

        before = module.register_forward_pre_hook(self.guarded(look_at_inputs), with_kwargs=True)
        handle = nn_module.register_module_forward_hook(self.guarded(look))
        self.on_removal(before.remove)
        self.on_removal(handle.remove)

    def _write(self, watched: Watched, kind: str, found: list[tuple[str, float]]) -> None:
        for first in range(0, len(found), _ROW):
            part = found[first : first + _ROW]
            names = self.box.intern({"names": [name[:120] for name, _ in part]})
            watched.turns[kind] += 1
            self._samples.write(watched, kind, names, pack(f"{len(part)}d", *(value for _, value in part)))
