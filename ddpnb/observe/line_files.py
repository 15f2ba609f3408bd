"""Reads which lines of the user's code the ranks of one run executed."""

from __future__ import annotations

import os

from ddpnb.model.executed_lines import ExecutedLines
from ddpnb.model.line_file import LineReader
from ddpnb.model.shared import shared_file

_WINDOWS = 128  # of a rank that a Recording goes back


class LineFiles:
    """The files of executed lines.

    Args:
        folder: where they are.
        run: number of the run.
    """

    def __init__(self, folder: str, run: int) -> None:
        self._folder, self._run = folder, run
        self._readers: dict[int, LineReader] = {}

    def of(self, rank: int) -> ExecutedLines | None:
        """The lines of this rank; None: they are not recorded."""
        if rank not in self._readers:
            try:
                self._readers[rank] = LineReader(shared_file(os.path.join(self._folder, f"rank{rank}.lines")))
            except (OSError, ValueError):
                return None
        return self._readers[rank].read(self._run, _WINDOWS)
