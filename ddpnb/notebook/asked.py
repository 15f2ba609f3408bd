"""Parse the values of forms into arguments of the methods of World."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recording.faults import KINDS, Fault, fault

_RANKS = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")
_MOST = 100_000


def ranks(values: Mapping[str, str]) -> tuple[int, ...] | None:
    """``"0,2"`` or ``"0-3,8"``; None (all ranks) if empty.

    Raises:
        UsageError: not a list of ranks.
    """
    given = values.get("ranks", "").replace(" ", "")
    if given in ("", "all"):
        return None
    if not _RANKS.fullmatch(given):
        raise UsageError(f"{given!r} is not a list of ranks.", "Write them as 0,2 or 0-3,8.")
    found: list[int] = []
    for part in given.split(","):
        first, _, last = part.partition("-")
        more = range(int(first), int(last or first) + 1)
        if not more or len(found) + len(more) > _MOST:
            raise UsageError(f"{part!r} contains {'too many' if more else 'no'} ranks.", "Write them as 0,2 or 0-3,8.")
        found += more
    return tuple(dict.fromkeys(found))


def whole(values: Mapping[str, str], name: str, least: int = 1) -> int | None:
    """A whole number; None if empty.

    Raises:
        UsageError: not a whole number, or too small.
    """
    given = values.get(name, "").strip()
    if not given:
        return None
    if not re.fullmatch(r"\d{1,9}", given) or int(given) < least:
        raise UsageError(f"{name} must be a whole number from {least}, not {given!r}.")
    return int(given)


def described(values: Mapping[str, str]) -> Fault:
    """The selected fault, with its conditions and parameters.

    Raises:
        UsageError: an invalid fault.
    """
    kind = KINDS.get(values.get("kind", ""))
    if kind is None:
        raise UsageError("no fault selected.")
    given: dict[str, Any] = {
        name: value for name in ("seq", "step") if (value := whole(values, name, int(name != "step")))
    }
    if values.get("op"):
        given["op"] = values["op"]
    for one in kind.parameters:
        text = values.get(f"value:{one.name}", "").strip()
        if text and text != str(one.default):
            given[one.name] = _number(text) if isinstance(one.default, (int, float)) else text
    return fault(kind.name, **given)


def _number(text: str) -> int | float | str:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return found if isinstance(found, (int, float)) and math.isfinite(found) else text
