"""Reads the paths of the ranks of one run."""

from __future__ import annotations

import os

from ddpnb.recording.path import Path
from ddpnb.recording.path_file import PathReader
from ddpnb.recording.shared import shared_file


class PathFiles:
    """The files with paths.

    Args:
        folder: where they are.
        run: number of the run.
    """

    def __init__(self, folder: str, run: int) -> None:
        self._folder, self._run = folder, run
        self._readers: dict[int, PathReader] = {}

    def of(self, rank: int) -> Path | None:
        """The path of this rank; None: it is not recorded."""
        if rank not in self._readers:
            try:
                self._readers[rank] = PathReader(shared_file(os.path.join(self._folder, f"rank{rank}.path")))
            except (OSError, ValueError):
                return None
        return self._readers[rank].read(self._run)
