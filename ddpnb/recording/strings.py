"""The strings of a black box: JSON texts in a table that begins again with each run, in a new generation.

The number of a string holds its generation, so that a record never means a string of another one.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpnb.recording.names import UNDECODABLE

STRING_LIMIT = 16 << 10  # bytes of one string
PLACE_BITS = 20  # of a number; those above are the generation's
GENERATIONS = 1 << 32 - PLACE_BITS
_ZEROS = re.compile(b"\0*")


def string_number(generation: int, place: int) -> int:
    """The number in a record for the string at this place of that generation's table. 0 is no string."""
    return generation << PLACE_BITS | place if place else 0


@dataclass(slots=True)
class _Table:
    """The strings of one generation that have been read so far."""

    generation: int = 0
    strings: list[Any] = field(default_factory=list[Any])
    read: int = 0  # bytes
    damaged: bool = False  # where the next string begins is unknown
    decoded: dict[tuple[Any, int], Any] = field(default_factory=dict[tuple[Any, int], Any])

    def parse(self, data: bytes) -> None:
        """Append the strings that follow in the table, up to the first incomplete one."""
        at = 0
        while at + 4 <= len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            if end > len(data):
                break
            if end == at + 4:  # zeros, as in a file that was cut short: too many to look at one by one
                empty = (_ZEROS.match(data, at).end() - at) // 4  # type: ignore[union-attr]
                self.strings += [None] * empty
                end = at + 4 * empty
            else:
                self.strings.append(_parsed(data[at + 4 : end]))
            at = end
        self.read += at


def _parsed(data: bytes) -> Any:
    if len(data) > STRING_LIMIT:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


class Strings:
    """The strings that a reader knows: of the current and the previous generation. Any thread may read."""

    def __init__(self) -> None:
        self._table = self._before = _Table()
        self._lock = (
            threading.Lock()
        )  # two threads that append the same new string would shift the numbers of all later ones

    def follow(self, extent: Callable[[], tuple[int, int]], read: Callable[[int, int], bytes]) -> None:
        """Read the new strings.

        Args:
            extent: the table's generation now, and how many bytes of it are used.
            read: so many bytes from a place of the table on.
        """
        with self._lock:
            generation, used = before = extent()
            if generation != self._table.generation:
                self._table, self._before = _Table(generation), self._table
            table = self._table
            if table.damaged or table.read + 4 > used:
                return
            data = read(table.read, used - table.read)
            after = extent()
            if after[0] == generation and after >= before:  # else it has begun again: these bytes may be of both
                table.parse(data)
                table.damaged = table.read < used  # all that is in use is whole: the writer counts a string when it is

    def _find(self, number: int) -> tuple[_Table, Any]:
        generation, place = number >> PLACE_BITS, number & (1 << PLACE_BITS) - 1
        for table in (self._table, self._before):
            if table.generation == generation:
                return table, table.strings[place] if place < len(table.strings) else None
        return self._table, None

    def get(self, number: int) -> Any:
        """The JSON behind a number; None when there is none."""
        return self._find(number)[1]

    def decoded(self, number: int, read: Callable[[Any], Any], default: Any) -> Any:
        """What ``read`` makes of what is behind a number, decoded once."""
        table, value = self._find(number)
        key = (read, number)
        if key not in table.decoded:
            if not isinstance(value, Mapping):
                return default
            try:
                table.decoded[key] = read(value)
            except UNDECODABLE:
                return default
        return table.decoded[key]
