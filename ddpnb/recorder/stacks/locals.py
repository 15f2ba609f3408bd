"""The variables of a frame as short, bounded text, in bounded time."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from itertools import islice
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

from ddpnb.recorder.stacks.values import MAX_TEXT, Allowance, Writer, named
from ddpnb.recording.names import one_line
from ddpnb.recording.stacks import MAX_LOCALS, NOT_SHOWN

FRAME_S, LOOK_S = 0.002, 0.02  # time of the processor that the variables of a frame, and of all frames, may take
_NAMES = 4096  # variables of a frame that are described
_OF_IPYTHON = {"_ih", "_oh", "_dh"}  # in the namespace of its cells
_HISTORY = re.compile(
    r"_i{0,3}|_{2,3}|_i?\d+|_[idoh]h|In|Out|exit|quit|open|get_ipython"
    r"|_[0-9a-f]{8,64}(?:_[0-9a-f]{1,64}){0,4}_(?:f|args|kwargs|result)"  # of the call by which ipyparallel runs a cell
)
_HIDDEN = (ModuleType, FunctionType, BuiltinFunctionType, type)


def _proxy_type() -> type:
    return type(sys._getframe().f_locals)


_NAMESPACES = frozenset({id(dict), id(_proxy_type())})  # from Python 3.13 on a frame hands out a view of its variables


def describe_locals(frame: FrameType, *, values: bool = False, within: Allowance | None = None) -> dict[str, str]:
    """The frame's own variables as short text; modules, functions and classes are left out.

    Args:
        frame: whose.
        values: for comparing ranks: also the norm of tensors, and after all others what modules, functions and
            classes are called.
        within: what the whole look may take; a frame alone takes ``FRAME_S`` at most.
    """
    allowance = Allowance(FRAME_S, within)
    writer = Writer(MAX_TEXT, 6, 3, allowance)
    texts: dict[str, str] = {}
    hidden: list[tuple[str, Any]] = []
    for name, value in variables(frame):
        if type(name) is not str or name.startswith("__"):
            continue
        if is_hidden(value):
            hidden.append((name, value))
            continue
        if len(texts) == MAX_LOCALS:
            break
        shown = one_line(name[:80])
        if allowance.spent:
            texts[shown] = NOT_SHOWN
            continue
        text = writer.text(value)
        texts[shown] = text + allowance.norm(value) if values else text
    for name, value in hidden[: MAX_LOCALS - len(texts)] if values else ():
        texts.setdefault(one_line(name[:80]), named(value))
    return texts


def is_hidden(value: Any) -> bool:
    """Whether it is a module, function or class: part of the program, rather than of its data."""
    return issubclass(type(value), _HIDDEN)


def variables(frame: FrameType) -> Iterable[tuple[Any, Any]]:
    """Names and values of a frame, without those that IPython keeps beside the user's own in cells."""
    found = list(_variables(frame))
    names = {name for name, _ in found if type(name) is str}
    if not names >= _OF_IPYTHON:
        return found
    return [(name, value) for name, value in found if type(name) is not str or not _HISTORY.fullmatch(name)]


def _variables(frame: FrameType) -> Iterable[tuple[Any, Any]]:
    """Names and values, as many as are looked at, of one moment."""
    names: Any = frame.f_locals
    kind = type(names)
    if id(kind) in _NAMESPACES:
        return list(islice(names.items(), _NAMES))
    if issubclass(kind, dict):  # of a class that is being made, or of exec(): its items() may be the user's
        return list(islice(dict.items(names), _NAMES))
    return ()
