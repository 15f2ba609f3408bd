"""Values as short text: bounded in length and in the work that it takes.

A look holds the interpreter lock of a training that may be healthy. So nothing here runs the user's code
(which could also take a lock that a blocked main thread holds), nothing grows with the user's data, and what
has not been described when the time is spent is not shown.

A tensor is described by shape, type and device, and by its value only where that waits for nothing.
"""

from __future__ import annotations

import math
import sys
from itertools import islice
from time import thread_time_ns
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from ddpnb.recording.names import one_line

MAX_TEXT = 160
NORMS = 1 << 24  # elements of all tensors whose norms one look computes
_SHOWN, _READ = 1000, 1 << 20  # elements of a tensor that are shown, and of one whose norm is computed
_BITS = 512  # of an integer whose digits are shown: the work grows with its square
# Bytes of the table of a dict or set whose entries are shown: before the first there may be as many deleted ones.
_TABLE = 4 << 20
_PIECE = 1 << 15  # elements that torch reduces without waking its pool of threads

# Types are known by their ids: to compare or hash a class may run code of its metaclass.
_ATOMS = frozenset(map(id, (type(None), bool, float, complex, torch.dtype, torch.device)))
_TEXTS = frozenset(map(id, (str, bytes, bytearray)))
_BRACKETS = {id(list): "[]", id(tuple): "()", id(dict): "{}", id(set): "{}", id(frozenset): "{}", id(torch.Size): "[]"}
_SETS = frozenset(map(id, (set, frozenset)))
_TENSORS = frozenset(map(id, (torch.Tensor, torch.nn.Parameter)))  # a subclass may override it
_OWN = frozenset(map(id, torch.Tensor.__mro__))
_mro, _vars = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__
_contents = _vars(ModuleType)["__dict__"].__get__


class Allowance:
    """Time of the processor that the calling thread may still take; a machine under load does not shorten it.

    Args:
        seconds: how much.
        within: another one that ends this one too.
    """

    def __init__(self, seconds: float, within: Allowance | None = None) -> None:
        self.norms = within.norms if within is not None else [NORMS]
        self._end = thread_time_ns() + int(seconds * 1e9)
        if within is not None:
            self._end = min(self._end, within._end)
        self._within = within

    @property
    def spent(self) -> bool:
        return thread_time_ns() >= self._end

    def norm(self, value: Any) -> str:
        """The norm of a tensor, as far as the allowance of elements goes; torch frees the lock, so its time is given back."""
        count = value.numel() if id(type(value)) in _TENSORS else 0
        if not 1 < count <= self.norms[0]:
            return ""
        began = thread_time_ns()
        try:
            text = _norm(value, count)
        except Exception:  # sparse, or freed: there is none
            return ""
        self.norms[0] -= count if text else 0
        took = thread_time_ns() - began
        allowance: Allowance | None = self
        while allowance is not None:
            allowance._end += took
            allowance = allowance._within
        return text


class Writer:
    """Describes values.

    Args:
        most: characters of one description.
        items: elements of a container that are shown.
        levels: containers within containers that are shown.
        allowance: when it is spent, no more elements are shown.
    """

    def __init__(self, most: int, items: int, levels: int, allowance: Allowance) -> None:
        self._most, self._items, self._levels, self._allowance = most, items, levels, allowance

    def text(self, value: Any) -> str:
        """The description of a value. Never raises, never runs code of the value's class."""
        try:
            return self._cut(self._any(value, self._levels))
        except Exception as error:
            return f"{_named(type(value))[:-1]}: {type(error).__name__}>"

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._most else text[: self._most] + "…"

    def _any(self, value: Any, levels: int) -> str:
        kind = type(value)
        if id(kind) in _ATOMS:
            return repr(value)
        if kind is int:
            bits = value.bit_length()
            return repr(value) if bits <= _BITS else f"<int of {bits} bits>"
        if id(kind) in _TEXTS:
            return repr(value[: self._most]) + "…" * (len(value) > self._most)
        if id(kind) in _BRACKETS:
            return self._container(kind, value, levels)
        if kind is range or kind is slice:
            if levels < 0:  # slices within slices: three at each level
                return "<slice>"
            parts = (value.start, value.stop, value.step)
            shown = parts[:2] if kind is range and value.step == 1 else parts
            return f"{kind.__name__}({', '.join(self._any(part, levels - 1) for part in shown)})"
        if issubclass(kind, torch.Tensor):
            return _describe_tensor(value)
        if issubclass(kind, BaseException):
            # The getter of BaseException itself: a class may have a property of this name.
            held = BaseException.args.__get__(value)  # type: ignore[attr-defined]
            plain = (self._any(a, 0) for a in held[: self._items] if type(a) is str or type(a) is int)
            return f"{_slot(kind, '__name__')}({', '.join(plain)})"
        return _describe_array(value) or _named(kind)

    def _container(self, kind: type, value: Any, levels: int) -> str:
        opening, closing = _BRACKETS[id(kind)]
        length = len(value)
        # Which elements of a set come first differs from process to process: all of them, or none.
        unordered = id(kind) in _SETS
        hidden = unordered and length > self._items
        if unordered or kind is dict:
            hidden = hidden or sys.getsizeof(value) > _TABLE
        if length and (levels <= 0 or hidden):
            return f"<{kind.__name__} of {length}>"
        parts: list[str] = []
        size = 0
        # Copied in one step, so that no other thread changes it meanwhile.
        for entry in list(islice(value.items() if kind is dict else value, self._items)):
            if size > self._most or self._allowance.spent:
                break
            parts.append(": ".join(self._any(part, levels - 1) for part in (entry if kind is dict else (entry,))))
            size += len(parts[-1])
        if unordered:
            parts.sort()  # only the texts are cached, not the objects that they describe
        more = length - len(parts)
        text = ", ".join([*parts, f"… {more} more"] if more else parts)
        text = opening + text + ("," if kind is tuple and length == 1 else "") + closing
        if kind is torch.Size:
            return f"torch.Size({text})"
        return (
            f"{kind.__name__}({text if length else ''})" if kind is frozenset or (kind is set and not length) else text
        )


def _slot(kind: type, name: str) -> str:
    """A name of a class as ``type`` itself gives it: a metaclass may have a property there."""
    text = type.__dict__[name].__get__(kind)
    return one_line(text[:80]) if type(text) is str else "?"


def _named(kind: type) -> str:
    return f"<{_slot(kind, '__module__')}.{_slot(kind, '__qualname__')}>"


def named(value: Any) -> str:
    """What a module, a function or a class is called: ``<function loss_of>``, ``<class train.Model>``."""
    kind = type(value)
    if issubclass(kind, type):
        return f"<class {_slot(value, '__module__')}.{_slot(value, '__qualname__')}>"
    if issubclass(kind, ModuleType):
        name = _contents(value).get("__name__")
        return f"<module {one_line(name[:80]) if type(name) is str else '?'}>"
    if kind is FunctionType or kind is BuiltinFunctionType:
        name = value.__qualname__
        return f"<function {one_line(name[:80]) if type(name) is str else '?'}>"
    return "<function ?>"


def _describe_tensor(tensor: torch.Tensor) -> str:
    kind = type(tensor)
    exact = id(kind) in _TENSORS
    if not exact and _dispatches(kind):
        return _named(kind)
    with torch._C.DisableTorchFunctionSubclass():
        shape = list(torch.Tensor.shape.__get__(tensor))  # type: ignore[attr-defined]
        dtype = torch.Tensor.dtype.__get__(tensor)  # type: ignore[attr-defined]
        device = torch.Tensor.device.__get__(tensor)  # type: ignore[attr-defined]
    name = str(dtype).removeprefix("torch.")
    if exact and math.prod(shape) == 1 and is_readable(tensor):
        article = "an" if name.startswith("i") else "a"
        value = tensor.detach().item()
        shown = f"{value:d}" if isinstance(value, int) else f"{value:.6g}"
        return f"{shown} ({article} {name} tensor{f' of shape {shape}' if shape else ''})"
    return f"{'tensor' if exact else _slot(kind, '__name__')}{shape} {name} {device}"


def _dispatches(kind: type) -> bool:
    """Whether the shape of such a tensor may be an answer of Python code. That of torch's DTensor is not."""
    if kind is _loaded("torch.distributed.tensor", "DTensor"):
        return False
    return any("__torch_dispatch__" in _vars(base) for base in _mro(kind) if id(base) not in _OWN)


def _loaded(module: str, name: str) -> Any:
    """What a module holds under a name; None where there is no such module. A script may put anything in its place."""
    held = sys.modules.get(module)
    return _contents(held).get(name) if issubclass(type(held), ModuleType) else None


def _describe_array(value: Any) -> str:
    """An array of numpy, where that was imported; empty for anything else."""
    numpy = _loaded("numpy", "ndarray")
    if type(numpy) is not type or type(value) is not numpy:
        return ""
    kind: Any = numpy
    dtype = kind.dtype.__get__(value)
    return f"<ndarray {kind.shape.__get__(value)} {dtype.name if dtype.isbuiltin == 1 else 'structured'}>"


def describe(value: Any, most: int) -> str:
    """A value that somebody asked for: its own repr, at most so long; what is large by its parts, a tensor by its norm."""
    if isinstance(value, torch.Tensor) and (value.numel() > _SHOWN or (value.is_cpu and not is_readable(value))):
        return _describe_tensor(value) + _norm(value, value.numel())
    if _weight(value, most) > most:
        return Writer(most, 64, 4, Allowance(0.1)).text(value)
    return _cut(repr(value), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _weight(value: Any, most: int) -> int:
    """About how many characters the repr of plain containers and texts has; more than ``most`` as soon as that is sure."""
    total, left = 0, [value]
    while left and total <= most:
        entry = left.pop()
        kind = type(entry)
        total += 2
        if kind is int:
            total += entry.bit_length() // 3
        elif id(kind) in _TEXTS:
            total += len(entry)
        elif id(kind) in _BRACKETS:
            total += 2 * len(entry)
            if total <= most:
                left.extend(entry)
                left.extend(entry.values() if kind is dict else ())
    return total


def is_readable(tensor: torch.Tensor, *, anywhere: bool = False) -> bool:
    """Whether the values lie in this process's memory. FSDP frees that of a tensor that lives on: to read it would kill.

    ``anywhere``: also in that of a device.
    """
    if (tensor.device.type != "cpu" and not anywhere) or tensor.layout is not torch.strided:
        return False
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in steps)
    return bool(tensor.numel() > 0 and tensor.untyped_storage().nbytes() >= (last + 1) * tensor.element_size())


def _norm(tensor: torch.Tensor, count: int) -> str:
    """All values in one number, where reading them waits for nothing and is quick."""
    if not 1 < count <= _READ or tensor.is_complex() or tensor.is_quantized or not is_readable(tensor):
        return ""
    pieces = tensor.detach().reshape(-1).split(_PIECE)
    return f" norm {math.hypot(*(piece.to(torch.float64).norm().item() for piece in pieces)):.6g}"
