"""Answers of a rank as JSON."""

from __future__ import annotations

import math
from typing import Any

_DEEP = 16  # levels of an answer


def encodable(value: Any, levels: int = _DEEP) -> Any:
    """An answer as JSON that the channel can carry: without what would leave the launcher without an answer.

    File names and variables may hold lone surrogates, facts numbers that JSON has not.
    """
    kind = type(value)
    if kind is not bool and issubclass(kind, (int, float)):
        value = int.__pos__(value) if issubclass(kind, int) else float.__pos__(value)  # of an enumeration: the number
        kind = type(value)
    if kind is str:
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if value.bit_length() <= 64 else f"<int of {value.bit_length()} bits>"
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if levels and kind is dict:
        return {encodable(str(name), 0): encodable(held, levels - 1) for name, held in value.items()}
    if levels and kind in (list, tuple):
        return [encodable(held, levels - 1) for held in value]
    return f"<{kind.__name__}>"
