"""What is inside a value, one level at a time: bounded, and without running code of the user's (see ``values``).

A path is written as in Python, from a variable: ``args.model``, ``batch['image']``, ``optimizer.param_groups[0]``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from types import FrameType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

import torch

from ddpnb.recorder.stacks.locals import LOOK_S, is_hidden, variables
from ddpnb.recorder.stacks.user_frames import frames_of, is_user_file, looked_at
from ddpnb.recorder.stacks.values import MAX_TEXT, Allowance, Writer
from ddpnb.recording.names import one_line
from ddpnb.recording.stacks import NOT_SHOWN

MAX_INSIDE = 64  # that are shown of one value
_LOOKED_AT = 4096  # in which the next step of a path is searched
_LONGEST = 400  # characters of a path
_NAME = re.compile(r"[^\W\d]\w*")
_mro, _vars = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__
_SEQUENCES = (list, tuple, deque)
_STORES = ("_parameters", "_buffers", "_modules")  # of a torch module


def look(file: str, function: str, path: str) -> dict[str, Any]:
    """What is inside a value in the innermost frame of this function on the main thread.

    Returns:
        ``inside``: pairs of label and description, ``more``: how many were left out; or ``error``.
    """
    frames = frames_of(looked_at())
    names = next((_locals(one) for one in frames if _is_of(one, file, function)), None)
    frames.clear()
    if names is None:
        return {"error": "is no longer in this function"}
    try:
        value = _found(names, path[:_LONGEST])
    except LookupError:
        return {"error": f"has no {one_line(path[:80])}"}
    children = list(islice(inside(value), _LOOKED_AT))
    allowance = Allowance(LOOK_S)  # for the values: the names of many parts take time too
    writer = Writer(MAX_TEXT, 6, 3, allowance)
    rows: list[list[str]] = []
    for label, child in children[:MAX_INSIDE]:
        rows.append([label, NOT_SHOWN if allowance.spent else writer.text(child) + allowance.norm(child)])
    return {"inside": rows, "more": (_length(value) if len(children) == _LOOKED_AT else len(children)) - len(rows)}


def _length(value: Any) -> int:
    """How many parts a value has, of which not all are looked at."""
    kinds = (kind for kind in (dict, *_SEQUENCES) if issubclass(type(value), kind))
    return next((kind.__len__(value) for kind in kinds), _LOOKED_AT)


def _is_of(frame: FrameType, file: str, function: str) -> bool:
    code = frame.f_code
    return code.co_filename[:4096] == file and code.co_name[:200] == function and is_user_file(code.co_filename)


def _locals(frame: FrameType) -> dict[str, Any]:
    return {name: value for name, value in variables(frame) if type(name) is str}


def _found(names: Mapping[str, Any], path: str) -> Any:
    """The value at a path.

    Raises:
        LookupError: there is none.
    """
    match = _NAME.match(path)
    if match is None:
        raise LookupError(path)
    value, rest = names[match[0]], path[match.end() :]
    while rest:
        steps = ((label, child) for label, child in islice(inside(value), _LOOKED_AT) if rest.startswith(label))
        label, value = max(steps, key=lambda step: len(step[0]), default=("", None))
        if not label:
            raise LookupError(path)
        rest = rest[len(label) :]
    return value


def inside(value: Any) -> Iterable[tuple[str, Any]]:
    """The parts of a value and their labels; none for what is shown whole."""
    kind = type(value)
    if is_hidden(value) or issubclass(kind, (torch.Tensor, str, bytes)):
        return ()
    if issubclass(kind, dict):
        held = list(islice(dict.items(value), _LOOKED_AT))
        return [(f"[{_key(key, number)}]", child) for number, (key, child) in enumerate(held)]
    for sequence in _SEQUENCES:
        if issubclass(kind, sequence):
            fields = _vars(kind).get("_fields")  # of a named tuple
            named = [f".{one}" for one in fields if type(one) is str] if type(fields) is tuple else []
            held = list(islice(sequence.__iter__(value), _LOOKED_AT))
            labels = named if len(named) == len(held) else [f"[{number}]" for number in range(len(held))]
            return list(zip(labels, held, strict=True))
    return _attributes(value)


def _attributes(value: Any) -> list[tuple[str, Any]]:
    kind = type(value)
    held = _dict_of(value)
    of_torch = issubclass(kind, (torch.nn.Module, torch.optim.Optimizer))
    found: list[tuple[str, Any]] = []
    for store in _STORES if issubclass(kind, torch.nn.Module) else ():
        named = held.get(store)
        if isinstance(named, dict):
            found += [(_attribute(name), child) for name, child in dict.items(named) if type(name) is str]
    for name, child in [*list(islice(held.items(), _LOOKED_AT)), *_slots(value)]:
        if type(name) is str and not name.startswith("__") and not (of_torch and name.startswith("_")):
            found.append((_attribute(name), child))
    return sorted(found, key=lambda one: one[0].startswith("._"))  # private ones last


def _dict_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, where Python itself keeps them: a class may have a property of that name."""
    for base in _mro(type(value)):
        descriptor = _vars(base).get("__dict__")
        if descriptor is not None:
            if type(descriptor) in (GetSetDescriptorType, MemberDescriptorType):
                held = descriptor.__get__(value)
                return held if type(held) is dict else {}
            break
    return {}


def _slots(value: Any) -> Iterable[tuple[str, Any]]:
    for base in _mro(type(value)):
        for name, descriptor in list(_vars(base).items()):
            if type(descriptor) is MemberDescriptorType and not name.startswith("__"):
                try:
                    yield name, descriptor.__get__(value)
                except AttributeError:  # not set
                    continue


def _attribute(name: str) -> str:
    return f"[{name}]" if name.isdecimal() else f".{one_line(name[:80])}"


def _key(key: Any, number: int) -> str:
    return f"tensor {number}" if issubclass(type(key), torch.Tensor) else Writer(60, 6, 1, Allowance(0.001)).text(key)
