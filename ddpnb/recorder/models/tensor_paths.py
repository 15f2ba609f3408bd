"""Find a tensor by its name: in a frame, or among the followed models. No code of the user's runs.

Attributes are read where they lie (in the object, in a module's tables, in slots), never by properties; items are read as
``dict``, ``list`` and ``tuple`` themselves do. What can only be had by running code is refused, with the reason.
"""

from __future__ import annotations

from collections import UserDict, deque
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import torch

from ddpnb.recorder.models.tracked_model import Watched, is_user_class
from ddpnb.recording.names import one_line
from ddpnb.recording.tensors import Key, Step

_mro, _vars = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__
_SLOTS = frozenset(map(id, (MemberDescriptorType, type(NamedTuple("_", [("x", int)]).x))))  # type: ignore[misc]
_OF_TENSORS = ("grad", "data", "T", "mT")
_TABLES = ("_parameters", "_buffers", "_modules")
_CLOSE, _NAMES, _ITEMS, _DEEP = 500, 400, 16, 12
_HIDDEN = (ModuleType, FunctionType, type)


class NotFound(Exception):
    """There is no such tensor, or it cannot be read; the text is a sentence for the user."""


def resolve(names: Mapping[str, Any], first: str, steps: tuple[Step, ...]) -> Any:
    """What a path leads to.

    Raises:
        NotFound: nothing, or something that only code of the user's can give.
    """
    held, at = names[first], first
    for kind, key in steps:
        held = _attribute(held, str(key), at) if kind == "attribute" else _item(held, key, at)
        at += f".{key}" if kind == "attribute" else f"[{_written(key)}]"
    return held


def similar(name: str, names: Mapping[str, Any]) -> str:
    """A question that names the nearest other name; empty if none is near."""
    known = [one for one in islice(names, _CLOSE) if type(one) is str]
    near = get_close_matches(name, known, 1)
    return f" Did you mean {one_line(near[0][:80])}?" if near else ""


def _attribute(held: Any, name: str, at: str) -> Any:
    kind = type(held)
    if issubclass(kind, torch.Tensor):
        return _of_tensor(held, name, at)
    own = contents(held)
    if name in own:
        return own[name]
    for table in _tables(kind, own):
        if name in table:
            return table[name]
    for base in _mro(held if issubclass(kind, type) else kind):
        found = _vars(base).get(name, contents)
        if found is contents:  # not there
            continue
        if id(type(found)) in _SLOTS:
            return found.__get__(held)
        if any("__get__" in _vars(one) for one in _mro(type(found))):
            raise NotFound(f"{at}.{name} is computed: to read it would run code. world.evaluate() does.")
        return found
    known = dict.fromkeys((*own, *(key for table in _tables(kind, own) for key in table)))
    raise NotFound(f"{at} has no attribute {name}.{similar(name, known)}")


def _of_tensor(tensor: Any, name: str, at: str) -> Any:
    own = contents(tensor)
    if name in own:  # _local_tensor of a sharded one, what a script has noted on it
        return own[name]
    if name not in _OF_TENSORS:
        raise NotFound(f"{at} is a tensor: of its attributes only {', '.join(_OF_TENSORS)} can be read.")
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        if name != "grad":
            return torch.Tensor.detach(tensor) if name == "data" else getattr(torch.Tensor, name).__get__(tensor)
        grad = tensor.grad if tensor.is_leaf or tensor.retains_grad else None  # else torch would warn
    if grad is None:
        why = "" if tensor.is_leaf else ": it is not a leaf, whose gradients alone are kept"
        raise NotFound(f"{at} has no gradient now{why}.")
    return grad


def _item(held: Any, key: Key, at: str) -> Any:
    kind = type(held)
    if issubclass(kind, torch.Tensor):
        if isinstance(key, str):
            raise NotFound(f"{at} is a tensor, which has no item {_written(key)}.")
        try:
            with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
                return torch.Tensor.__getitem__(held, key)
        except (IndexError, ValueError) as error:
            raise NotFound(f"{at}[{_written(key)}]: {one_line(str(error)[:200])}.") from None
    if issubclass(kind, torch.nn.Module):
        return _attribute(held, str(_from_the_end(held, key)), at)
    if issubclass(kind, UserDict):
        held = contents(held).get("data")
        kind = type(held)
    if issubclass(kind, dict) and isinstance(key, (int, str)):
        found = dict.get(held, key, contents)
        if found is contents:
            raise NotFound(f"{at} has no item {_written(key)}.{similar(str(key), held) if key else ''}")
        return found
    for plain in (list, tuple, deque):
        if issubclass(kind, plain) and isinstance(key, int):
            if not -plain.__len__(held) <= key < plain.__len__(held):
                raise NotFound(f"{at} has {plain.__len__(held)} items, and none with the index {key}.")
            return plain.__getitem__(held, key)
    raise NotFound(f"an item of {at} ({one_line(kind.__name__)}) cannot be read without running code.")


def _from_the_end(module: Any, key: Key) -> Key:
    """As ``nn.Sequential`` and ``nn.ModuleList`` count: -1 is the last."""
    modules = contents(module).get("_modules")
    return len(modules) + key if isinstance(key, int) and key < 0 and isinstance(modules, dict) else key


def _written(key: Key) -> str:
    if isinstance(key, tuple):
        return ", ".join(map(_written, key))
    if isinstance(key, slice):
        ends = ["" if end is None else str(end) for end in (key.start, key.stop, key.step)]
        return ":".join(ends if ends[2] else ends[:2])
    return repr(key)


def contents(held: Any) -> Mapping[str, Any]:
    """The attributes that lie in an object itself."""
    kind = type(held)
    if issubclass(kind, type):
        return _vars(held)
    for base in _mro(kind):
        found = _vars(base).get("__dict__")
        if type(found) in (GetSetDescriptorType, MemberDescriptorType):
            own = found.__get__(held)
            return own if isinstance(own, dict) else {}
    return {}


def _tables(kind: type, own: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters, buffers and submodules of a module."""
    if not issubclass(kind, torch.nn.Module):
        return []
    tables = (own.get(name) for name in _TABLES)
    return [table for table in tables if isinstance(table, dict)]


# -- which tensors there are


def tensors_in(names: Mapping[str, Any]) -> list[str]:
    """The names of tensors that variables hold or lead to, as many as are offered."""
    found: list[str] = []
    for name, value in islice(names.items(), 4096):
        if type(name) is str and not name.startswith("__") and not issubclass(type(value), _HIDDEN):
            for one in _within(name, value, _DEEP):
                found.append(one)
                if len(found) >= _NAMES:
                    return found
    return found


def _within(at: str, value: Any, levels: int) -> Iterator[str]:
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        yield at
        return
    if not levels:
        return
    if issubclass(kind, torch.nn.Module):
        for table in _tables(kind, contents(value)):
            for name, part in list(table.items()):
                if part is not None:
                    yield from _within(f"{at}[{name}]" if name.isdecimal() else f"{at}.{name}", part, levels - 1)
    elif kind is dict:
        for key, part in list(islice(value.items(), _ITEMS)):
            if type(key) in (str, int):
                yield from _within(f"{at}[{key!r}]", part, levels - 1)
    elif kind in (list, tuple):
        for number, part in enumerate(value[:_ITEMS]):
            yield from _within(f"{at}[{number}]", part, levels - 1)
    elif is_user_class(kind):
        for name, part in list(islice(contents(value).items(), 200)):
            if type(name) is str:
                yield from _within(f"{at}.{name}", part, min(levels - 1, 4))


# -- tensors of the followed models


def of_model(watched: Watched, name: str, optimizers: Iterable[Any]) -> Any:
    """A parameter or buffer of a model, a gradient (``NAME.grad``), or a state of its optimizer (``NAME.exp_avg``); else None."""
    tensors = {name: tensor for name, tensor in zip(watched.names, watched.tensors, strict=False) if tensor is not None}
    if name in tensors:
        return tensors[name]
    owner, _, last = name.rpartition(".")
    if owner not in tensors:
        return None
    if last == "grad":
        return _of_tensor(tensors[owner], "grad", owner)
    for optimizer in optimizers:
        state = contents(optimizer).get("state")
        held = dict.get(state, tensors[owner]) if isinstance(state, dict) else None
        if isinstance(held, dict) and isinstance(held.get(last), torch.Tensor):
            return held[last]
    return None


def tensors_of(watched: Watched, optimizers: Iterable[Any]) -> Iterator[str]:
    """The names that ``of_model`` takes: first the parameters and buffers, then gradients, then states."""
    yield from (name for name, tensor in zip(watched.names, watched.tensors, strict=False) if tensor is not None)
    parameters = [(name, one) for name, one in zip(watched.names, watched.parameters, strict=False) if one is not None]
    yield from (f"{name}.grad" for name, parameter in parameters if parameter.is_leaf and parameter.grad is not None)
    for optimizer in optimizers:
        state = contents(optimizer).get("state")
        for name, parameter in parameters:
            held = dict.get(state, parameter) if isinstance(state, dict) else None
            for key, value in list(held.items()) if isinstance(held, dict) else ():
                if type(key) is str and isinstance(value, torch.Tensor):
                    yield f"{name}.{key}"
