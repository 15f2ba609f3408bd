"""Checks of arguments of public functions; errors say what to give instead."""

# pyright: standard
from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from itertools import islice
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.texts import shortened

_MOST = 1 << 16  # entries of a list
_LONGEST = 80  # characters of a value in a message
_LONGEST_S = 1e9  # thirty years: what the system's own waits can take


def seconds(name: str, value: Any, *, least: float | None = None) -> float:
    """A number of seconds above 0, or from ``least`` on.

    Raises:
        UsageError: it is none: no number, not a number (NaN), negative, or without end.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (0 if least is None else least) <= value <= _LONGEST_S or (least is None and value == 0):
        wanted = "a positive number of seconds" if least is None else f"a number of seconds from {least:g}"
        raise UsageError(f"{name} must be {wanted}, not {short(value)}.")
    return float(value)


def whole(name: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    """A whole number within these limits.

    Raises:
        UsageError: it is none.
    """
    number = _integer(value)
    if number is None or not least <= number <= most:
        wanted = f"from {least}" if most == 2**31 - 1 else f"from {least} to {most}"
        raise UsageError(f"{name} must be a whole number {wanted}, not {short(value)}.")
    return number


def wholes(name: str, value: Any) -> tuple[int, ...]:
    """Several whole numbers from 0.

    Raises:
        UsageError: it is something else.
    """
    values = None if isinstance(value, (str, bytes)) else _listed(value)
    if values is None:
        raise UsageError(f"{name} must be a list of whole numbers, not {short(value)}.")
    return tuple(whole(name, one, 0) for one in values)


def text(name: str, value: Any) -> str:
    """A text.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a string, not {short(value)}.")
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    """One text or several.

    Raises:
        UsageError: it is something else.
    """
    values = (value,) if isinstance(value, str) else _listed(value)
    if values is None or not all(isinstance(one, str) for one in values):
        raise UsageError(f"{name} must be a string or a list of strings, not {short(value)}.")
    return values


def ranks(value: Any, size: int) -> tuple[int, ...]:
    """One rank or several, each once.

    Raises:
        UsageError: there is no such rank.
    """
    single = _integer(value)
    values = _listed(value) if single is None else (single,)
    if values is None or isinstance(value, (str, bytes)):
        raise UsageError(
            f"ranks must be a rank or a list of ranks, not {short(value)}.", "Write ranks=1 or ranks=[0, 2]."
        )
    found: dict[int, None] = {}
    for entry in values:
        rank = _integer(entry)
        if rank is None or not 0 <= rank < size:
            raise UsageError(f"there is no rank {short(entry)} in a world of {size}.")
        found[rank] = None
    return tuple(found)


def member(name: str, value: Any, known: Iterable[int]) -> int:
    """One of the ranks that are known.

    Raises:
        UsageError: it is none of them.
    """
    ranks_known = sorted(known)
    number = _integer(value)
    if number is None or number not in ranks_known:
        raise UsageError(
            f"there is no {name} {short(value)} here.", f"There are: {', '.join(map(str, ranks_known[:16]))}."
        )
    return number


def short(value: Any) -> str:
    """A value as text for a message; of a long path the end, which tells what it is."""
    try:
        shown = repr(value)
    except Exception:
        shown = f"a {type(value).__name__}"
    if isinstance(value, str) and os.path.isabs(value) and len(shown) > _LONGEST:
        shown = repr(f"...{value[-_LONGEST + 5 :]}")
    return shortened(shown, _LONGEST)


def _listed(value: Any) -> tuple[Any, ...] | None:
    """The entries of a finite iterable; None for anything else."""
    try:
        values = tuple(islice(value, _MOST + 1))
    except Exception:  # a tensor without dimensions, or an iterator of the user's own
        return None
    return values if len(values) <= _MOST else None


def _integer(value: Any) -> int | None:
    """A whole number, also one of NumPy or PyTorch; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except Exception:  # of the user's own class, or a tensor of several
        return None
