"""What the ranks of a run wrote and displayed, folded over equal ranks: for the cell that is shown, and for panels."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ddpnb.ranks.observe.displays import DisplayFile
from ddpnb.recording.ending import Ending
from ddpnb.recording.protocol import displays_of
from ddpnb.render import cells
from ddpnb.render.screen import as_seen
from ddpnb.texts import relative
from ddpnb.world.run import Run


class Log:
    """The end of a rank's log, read as it grows, and a digest of all of it; with what a cell displayed in between.

    Args:
        path: the file.
        most: bytes that are kept.
    """

    def __init__(self, path: str, most: int = cells.MOST) -> None:
        self._path, self._most = path, most
        self._displays = DisplayFile(displays_of(path))
        self._tail = b""
        self._size = 0
        self._digest = 0
        self._output = cells.Output("")
        self._read: object = None  # of what the output was made

    def read(self) -> cells.Output:
        """The output so far. If the file was removed with its World, what was read before."""
        self._displays.read()
        with suppress(OSError), Path(self._path).open("rb") as file:
            file.seek(self._size)
            while block := file.read(1 << 20):
                self._size += len(block)
                self._digest = zlib.crc32(block, self._digest)
                self._tail = (self._tail + block)[-self._most :]
        read = self._size, tuple(self._displays.shown), self._displays.cleared, self._displays.waiting
        if read != self._read:
            self._read, self._output = read, self._parsed()
        return self._output

    def _parsed(self) -> cells.Output:
        shown, cleared, waiting = self._displays.shown, self._displays.cleared, self._displays.waiting
        if waiting is not None and self._size > waiting:
            shown, cleared = [], waiting
        began = self._size - len(self._tail)
        left_out = max(0, began - cleared)
        position = max(began, cleared)
        if left_out:
            position += len(self._tail.partition(b"\n")[0] + b"\n") if b"\n" in self._tail else 0
        text, displays = "", list[tuple[int, cells.Display]]()
        for one in shown:
            text += self._text(position, one.start)
            position = max(position, one.end)
            displays.append((len(text), one.display))
        text += self._text(position, self._size)
        return cells.Output(text, "", left_out, self._digest if left_out else 0, self._path, tuple(displays))

    def _text(self, start: int, end: int) -> str:
        began = self._size - len(self._tail)
        return as_seen(self._tail[max(0, start - began) : max(0, end - began)].decode("utf-8", "replace"))


class RunOutput:
    """The output of all ranks of a run, block by block.

    Args:
        run: the run.
        most: bytes of each rank that are kept.
    """

    def __init__(self, run: Run, most: int = cells.MOST) -> None:
        self._run = run
        self._logs = {rank: Log(str(Path(run.log_dir, f"rank{rank}.log")), most) for rank in run.endings}

    def blocks(self) -> list[cells.Block]:
        """The output so far, equal ones once; of a run whose outcome is known the exceptions have blocks of their own."""
        outputs = {rank: log.read() for rank, log in self._logs.items()}
        if not self._run.done:
            return cells.fold(outputs, growing=True)
        raised = _without_tracebacks(outputs, self._run.endings)
        return [*cells.fold(outputs), *cells.fold(raised)]


def _without_tracebacks(outputs: dict[int, cells.Output], endings: dict[int, Ending | None]) -> dict[int, cells.Output]:
    """Cut each rank's traceback from the end of its output, so that both are folded separately."""
    found: dict[int, cells.Output] = {}
    for rank, ending in endings.items():
        if ending is None or not ending.traceback:
            continue
        raised = as_seen(ending.traceback)
        output = outputs[rank]
        before, there, after = output.text.rpartition(raised)
        if there:
            moved = (
                (at if at <= len(before) else max(len(before), at - len(there)), one) for at, one in output.displays
            )
            outputs[rank] = replace(output, text=before + after, displays=tuple(moved))
        found[rank] = cells.Output(relative(raised), f"raised {ending.exception}")
    return found
