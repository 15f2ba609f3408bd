"""What cells display on a rank, read from its file of lines as that grows (``recorder.process.displays`` writes it).

The file is a rank's, so it is untrusted: lines, their number and their size are bounded, and what is not valid is left out.
The content itself is what the user's own code displays; only a notebook's own renderers may get it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ddpnb.render.cells import Display

MAX_BYTES = 32 << 20  # of a file that are read
MAX_DISPLAYS = 512
_LONGEST = 200  # characters of a MIME type, or of the name of some metadata


@dataclass(frozen=True, slots=True)
class Shown:
    """A display, and which bytes of the log it stands for."""

    name: str
    display: Display
    start: int
    end: int


class DisplayFile:
    """The displays of a rank in a cell.

    Args:
        path: the file, which is not there before the first display.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: tuple[int, int] = (0, 0)
        self._position = 0
        self._rest = b""
        self._clear()

    def _clear(self) -> None:
        self.shown: list[Shown] = []
        self.cleared = 0  # what the log has before this byte is not shown any more
        self.waiting: int | None = None  # the same, once something follows

    def read(self) -> None:
        """Take what is new; ``shown``, ``cleared`` and ``waiting`` are then those of now."""
        with suppress(OSError), Path(self._path).open("rb") as file:
            stat = Path(self._path).stat()
            if (stat.st_dev, stat.st_ino) != self._file or stat.st_size < self._position:
                self._file, self._position, self._rest = (stat.st_dev, stat.st_ino), 0, b""
                self._clear()
            file.seek(self._position)
            block = file.read(max(0, MAX_BYTES - self._position))
            self._position += len(block)
            *lines, self._rest = (self._rest + block).split(b"\n")
            for line in lines:
                with suppress(ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
                    self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        if "clear" in line:
            at = max(0, int(line["at"]))
            if self.waiting is not None and at > self.waiting:  # text followed
                self.shown, self.cleared = [], self.waiting
            if line["clear"]:
                self.waiting = at
            else:
                self.shown, self.cleared, self.waiting = [], at, None
            return
        display = Display(_bundle(line["data"]), _bundle(line.get("metadata", {})))
        if "update" in line:
            name = str(line["update"])
            self.shown = [replace(one, display=display) if name and one.name == name else one for one in self.shown]
            return
        start, end = int(line["from"]), int(line["to"])
        if self.waiting is not None:
            self.shown, self.cleared, self.waiting = [], self.waiting, None
        before = self.shown[-1].end if self.shown else self.cleared
        if len(self.shown) < MAX_DISPLAYS and before <= start <= end:
            self.shown.append(Shown(str(line["new"]), display, start, end))


def _bundle(value: Any) -> dict[str, Any]:
    """MIME type -> content: text, or the JSON of a type of JSON."""
    found: dict[str, Any] = {}
    for kind, content in cast("Mapping[Any, Any]", value).items():
        if isinstance(kind, str) and isinstance(content, (str, dict, list, bool, int, float)) and len(kind) < _LONGEST:
            found[kind] = content
    return found
