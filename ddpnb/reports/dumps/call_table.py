"""The table of the different calls of a dump: training makes the same calls again and again.

This runs in the processes of ``processes``, so it needs the standard library alone.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

from ddpnb.reports.dumps.fields import MOST_TENSORS, sizes, text, texts, whole
from ddpnb.reports.pickles import Refused

MOST_FRAMES = 256
#: what calls have in common that are made again and again
_ALIKE = (
    "profiling_name", "process_group", "pg_id", "is_p2p", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes",
    "timeout_ms",
)  # fmt: skip


class CallTable:
    """The different calls of a dump. ``calls``: the place in it of each entry."""

    def __init__(self, entries: list[dict[Any, Any]]) -> None:
        self.rows: list[list[Any]] = []
        self.groups: list[list[Any]] = []
        self._frames: dict[Any, int] = {}
        self._stacks: dict[Any, int] = {}
        self._places: dict[tuple[str, ...], int] = {}
        self._joined: dict[Any, int] = {}
        stacks = self._read_stacks(entries)
        places: dict[tuple[bytes, int], int] = {}
        self.calls = [places.setdefault(key, len(places)) for key in zip(_keys(entries), stacks, strict=True)]
        first: dict[int, int] = {}
        for number in range(len(entries) - 1, -1, -1):
            first[self.calls[number]] = number
        for (_, stack), place in places.items():
            self.rows.append(self._row(entries[first[place]], stack))

    def _read_stacks(self, entries: list[dict[Any, Any]]) -> list[int]:
        """Frames are shared between stacks as the recorder writes them: which objects a list holds tells it from others."""
        lists = [entry.get("frames") for entry in entries]
        lists = [one if type(one) is list else list(one) if type(one) is tuple else [] for one in lists]
        objects = [tuple(map(id, one if len(one) <= MOST_FRAMES else one[:MOST_FRAMES])) for one in lists]
        known = {key: self._stack(one) for key, one in dict(zip(objects, lists, strict=True)).items()}
        return [known[key] for key in objects]

    def _stack(self, frames: list[Any]) -> int:
        content = tuple(map(self._frame, frames[:MOST_FRAMES]))
        return self._stacks.setdefault(content, len(self._stacks)) if content else -1

    def _frame(self, frame: Any) -> int:
        held = frame if isinstance(frame, dict) else {}
        file, line, name = held.get("filename"), held.get("line"), held.get("name")
        place = (_known if type(file) is type(name) is str and type(line) is int else _place)(file, line, name)
        return self._frames.setdefault(place, len(self._frames))

    def _row(self, entry: dict[Any, Any], stack: int) -> list[Any]:
        named = entry.get("process_group")
        name, label = (named[0], named[1]) if isinstance(named, (list, tuple)) and len(named) == 2 else (None, "")
        number = text(entry.get("pg_id"))
        group = (text(number if name is None else name), text(label), number)
        place = self._places.setdefault(group, len(self._places))
        if place == len(self.groups):
            self.groups.append(list(group))
        profiled = text(entry.get("profiling_name"))[:200]
        return [
            profiled, place, int(entry.get("is_p2p") is True or _is_message(profiled)),
            sizes(entry.get("input_sizes")), sizes(entry.get("output_sizes")),
            texts(entry.get("input_dtypes")), texts(entry.get("output_dtypes")),
            whole(entry.get("timeout_ms")), stack,
        ]  # fmt: skip

    def join(self, parts: list[int], marker: int) -> int:
        """The call that a batch is: all its tensors, at the line of its first part."""
        key = (tuple(parts), marker)
        if key not in self._joined:
            self._joined[key] = len(self.rows)
            rows, last = [self.rows[part] for part in parts], self.rows[marker]
            alike = len({row[0] for row in rows}) == 1
            plain = last[0].lower().endswith((":coalesced", ":coalesced_coalesced"))
            name = rows[0][0] + "_coalesced" if alike and plain else last[0]
            tensors = [list(chain.from_iterable(row[k] for row in rows))[:MOST_TENSORS] for k in range(3, 7)]
            self.rows.append([name, last[1], 0, *tensors, last[7], rows[0][8] if rows[0][8] >= 0 else last[8]])
        return self._joined[key]

    def content(self) -> dict[str, Any]:
        return {
            "calls": self.rows,
            "groups": self.groups,
            "frames": list(self._frames),
            "stacks": list(self._stacks),
        }


def _place(file: Any, line: Any, name: Any) -> tuple[str, int, str]:
    return text(file), whole(line), text(name)[:200]


_known = lru_cache(4096)(_place)  # the dumps of a job have the same frames


def _keys(entries: list[dict[Any, Any]]) -> list[bytes]:
    """Entries are alike if these fields are; as bytes they can be compared at once."""
    known = [key for key in _ALIKE if entries and key in entries[0]]
    get: Callable[[Any], Any] = itemgetter(*known) if known else str
    try:
        try:
            return [marshal.dumps(get(entry), 2) for entry in entries]
        except KeyError:
            return [marshal.dumps([entry.get(key) for key in _ALIKE], 2) for entry in entries]
    except ValueError:
        raise Refused("is nested too deeply for a dump") from None


def _is_message(name: str) -> bool:
    return name.rpartition(":")[2].startswith(("send", "recv"))
