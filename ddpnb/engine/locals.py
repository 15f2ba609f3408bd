"""The variables of a frame as short, bounded text.

A tensor is described by shape, type and device, and by its value only where that waits for nothing.
"""

from __future__ import annotations

import reprlib
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

MAX_LOCALS, MAX_TEXT = 40, 160
_SHOWN, _READ = 1000, 1 << 20  # elements of a tensor that are shown, and of one whose norm is told

# Types whose repr runs no code of the user's. Any other could take a lock that the hanging main
# thread holds, and the hotline would hang with it.
_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, list, tuple, set,
    frozenset, dict, torch.dtype, torch.device, torch.Size,
)  # fmt: skip


class _Bounded(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = MAX_TEXT
        self.maxlevel = 3

    def repr1(self, x: Any, level: int) -> str:
        kind = type(x)
        if kind in _PLAIN:
            text = super().repr1(x, level)
        elif isinstance(x, torch.Tensor):
            text = _describe_tensor(x)
        elif isinstance(x, BaseException):
            text = f"{kind.__name__}({', '.join(str(a) for a in x.args if type(a) in (str, int))})"
        elif hasattr(kind, "dtype") and hasattr(kind, "shape"):
            text = f"<{kind.__name__} {getattr(x, 'shape', '')} {getattr(x, 'dtype', '')}>"
        else:
            text = f"<{kind.__module__}.{kind.__qualname__}>"
        return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def _describe_tensor(tensor: torch.Tensor) -> str:
    text = f"tensor{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} {tensor.device}"
    if tensor.device.type == "cpu" and tensor.numel() == 1 and type(tensor) in (torch.Tensor, torch.nn.Parameter):
        text += f" = {tensor.detach().item():.6g}"
    return text


def describe(value: Any, most: int) -> str:
    """A value that somebody asked for: its own repr, at most so long; a large tensor by its shape and norm."""
    if isinstance(value, torch.Tensor) and value.numel() > _SHOWN:
        return _describe_tensor(value) + _norm(value)
    text = repr(value)
    return text if len(text) <= most else text[:most] + "…"


def _norm(tensor: torch.Tensor) -> str:
    """Its values in one number, where reading them waits for nothing and is quick."""
    if tensor.device.type != "cpu" or not 1 < tensor.numel() <= _READ or tensor.is_complex() or tensor.is_quantized:
        return ""
    return f" norm {tensor.detach().to(torch.float64).norm().item():.6g}"


def describe_locals(frame: FrameType, *, values: bool = False) -> dict[str, str]:
    """The frame's own variables as short text; modules, functions and classes are left out.

    Args:
        frame: whose.
        values: also tell the norm of tensors, so that two ranks' can be compared.
    """
    bounded = _Bounded()
    found: dict[str, str] = {}
    for name, value in list(frame.f_locals.items()):
        if name.startswith("__") or isinstance(value, (ModuleType, FunctionType, BuiltinFunctionType, type)):
            continue
        try:
            text = bounded.repr1(value, bounded.maxlevel)
            plain = values and type(value) in (torch.Tensor, torch.nn.Parameter)
            found[name[:80]] = text + _norm(value) if plain else text
        except Exception as error:
            found[name[:80]] = f"<{type(value).__name__}: {type(error).__name__}>"
        if len(found) == MAX_LOCALS:
            break
    return found
