"""The variables of a frame as short, bounded text, in bounded time."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

from ddpnb.model.names import one_line
from ddpnb.model.stacks import MAX_LOCALS, NOT_SHOWN
from ddpnb.recorder.values import MAX_TEXT, Allowance, Writer

FRAME_S, LOOK_S = 0.002, 0.02  # time of the processor that the variables of a frame, and of all frames, may take
_NAMES = 4096  # variables of a frame that are described
_HIDDEN = (ModuleType, FunctionType, BuiltinFunctionType, type)


def _proxy_type() -> type:
    return type(sys._getframe().f_locals)


_NAMESPACES = frozenset({id(dict), id(_proxy_type())})  # from Python 3.13 on a frame hands out a view of its variables


def describe_locals(frame: FrameType, *, values: bool = False, within: Allowance | None = None) -> dict[str, str]:
    """The frame's own variables as short text; modules, functions and classes are left out.

    Args:
        frame: whose.
        values: also give the norm of tensors, so that those of two ranks can be compared.
        within: what the whole look may take; a frame alone takes ``FRAME_S`` at most.
    """
    allowance = Allowance(FRAME_S, within)
    writer = Writer(MAX_TEXT, 6, 3, allowance)
    texts: dict[str, str] = {}
    for name, value in _variables(frame):
        if type(name) is not str or name.startswith("__") or issubclass(type(value), _HIDDEN):
            continue
        if len(texts) == MAX_LOCALS:
            break
        shown = one_line(name[:80])
        if allowance.spent:
            texts[shown] = NOT_SHOWN
            continue
        text = writer.text(value)
        texts[shown] = text + allowance.norm(value) if values else text
    return texts


def _variables(frame: FrameType) -> Iterable[tuple[Any, Any]]:
    """Names and values, as many as are looked at, of one moment."""
    names: Any = frame.f_locals
    kind = type(names)
    if id(kind) in _NAMESPACES:
        return list(islice(names.items(), _NAMES))
    if issubclass(kind, dict):  # of a class that is being made, or of exec(): its items() may be the user's
        return list(islice(dict.items(names), _NAMES))
    return ()
