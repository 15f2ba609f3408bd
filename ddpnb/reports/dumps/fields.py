"""Fields of dumps, which may hold anything: what is absent or of another type is unknown."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ddpnb.recording import members

MOST_TENSORS, _MOST_DIMENSIONS, _MOST_GROUPS, _MOST_TEXT = 1024, 16, 65_536, 4096
LARGEST = 1 << 62


def whole(value: Any) -> int:
    """A number of a field that may hold anything; JSON dumps write some numbers as strings."""
    if type(value) is int:
        return value if -LARGEST < value < LARGEST else 0
    try:
        number = int(value) if isinstance(value, (int, float, str)) and len(str(value)[:24]) < 24 else 0
    except (ValueError, OverflowError):
        return 0
    return number if -LARGEST < number < LARGEST else 0


def text(value: Any) -> str:
    """Names and numbers; an empty text for anything else. JSON writes lone surrogates, which nothing can encode."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        return ""
    try:
        return str(value)[:_MOST_TEXT].encode("utf-8", "replace").decode()
    except ValueError:  # an integer with too many digits
        return ""


def texts(value: Any) -> tuple[str, ...]:
    return tuple(text(item)[:64] for item in value[:MOST_TENSORS]) if isinstance(value, (list, tuple)) else ()


def sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    """Shapes; one list of numbers is the shape of one tensor."""
    if not isinstance(value, (list, tuple)):
        return ()
    shapes = [value] if value and all(isinstance(size, int) for size in value[:_MOST_DIMENSIONS]) else value
    return tuple(
        tuple(max(whole(size), 0) for size in shape[:_MOST_DIMENSIONS]) if isinstance(shape, (list, tuple)) else ()
        for shape in shapes[:MOST_TENSORS]
    )


def config(value: Any) -> list[list[Any]]:
    """Name, description and members (``model.members``) of each group. Versions 1.x: the members alone, by the number of the group."""
    found: list[list[Any]] = []
    for key, held in list(value.items())[:_MOST_GROUPS] if isinstance(value, dict) else ():
        if isinstance(held, dict):
            ranks = held.get("ranks")
            found.append([text(held.get("name", key)), text(held.get("desc")), _ranks(ranks)])
        else:
            found.append([text(key), "", _ranks(held)])
    return found


def _ranks(value: Any) -> dict[str, Any]:
    """The members; newer versions write them as text. None of them if it holds anything else."""
    if isinstance(value, (list, tuple)):
        return _members(tuple(rank for rank in value[: _MOST_GROUPS * 4] if type(rank) is int and rank >= 0))
    return _named(value[: 8 * _MOST_GROUPS]) if isinstance(value, str) else {}


@lru_cache(64)  # each dump of a job repeats the list of all ranks
def _named(text: str) -> dict[str, Any]:
    return _members(tuple(map(int, re.findall(r"\d{1,9}", text))))


def _members(ranks: tuple[int, ...]) -> dict[str, Any]:
    return members.written(tuple(dict.fromkeys(ranks))) if all(rank < members.MOST_MEMBERS for rank in ranks) else {}


def status(dump: dict[Any, Any]) -> dict[str, list[int]]:
    """The numbers of the last enqueued, started and completed collective, by the number of the group."""
    value = dump.get("pg_status")
    names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    return {
        text(key): [whole(held.get(name, -1)) for name in names]
        for key, held in (list(value.items())[:_MOST_GROUPS] if isinstance(value, dict) else ())
        if isinstance(held, dict)
    }


def rank(dump: dict[Any, Any]) -> int:
    for key in ("rank", "global_rank"):
        if key in dump and text(dump[key]).isdecimal():
            return whole(dump[key])
    return -1
