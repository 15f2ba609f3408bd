"""Files that somebody drops, chooses or names: they are read in the background, and become a Recording."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ddpnb.errors import DdpnbError
from ddpnb.notebook.tasks import Tasks
from ddpnb.notebook.widgets.file_drop import FileDrop
from ddpnb.recording.recording import Recording
from ddpnb.world.loading import read

Loaded = Callable[[Recording], None]
_READING = "reading"
_PAUSE_S = 0.2  # between two updates of the page


class GivenFiles:
    """A ``FileDrop`` whose files are read.

    Args:
        before: paths that are read again together with the new files, which belong to the same job.
    """

    def __init__(self, before: Sequence[str] = ()) -> None:
        self.drop = FileDrop(self._received, lambda path: self._start([path]), label="files of a report")
        self._tasks = Tasks(self._show)
        self._before = list(before)
        self._on_loaded: Loaded = lambda _recording: None
        self._told = 0.0
        self._folders: list[str] = []  # where received files are: not part of their names

    def use(self, hint: str, on_loaded: Loaded) -> None:
        """Say what to drop there, and what to do with the Recording; that is called on another thread."""
        self.drop.hint, self._on_loaded = hint, on_loaded

    def _received(self, folder: str, names: list[str]) -> None:
        self._folders.append(folder)
        self._start([os.path.join(folder, first) for first in dict.fromkeys(name.split("/")[0] for name in names)])

    def _show(self) -> None:
        """Called by ``Tasks.draw``."""
        self.drop.said, self.drop.busy = self._tasks.said, ", ".join(self._tasks.busy)

    def _start(self, paths: list[str]) -> None:
        self._tasks.start(_READING, lambda: self._read(list(dict.fromkeys([*self._before, *paths]))))

    def _read(self, paths: list[str]) -> str:
        try:
            recording = self._named(read(paths, self._progress))
            self._before = paths
            self._on_loaded(recording)
        except DdpnbError as error:
            return self._short(str(error))
        return ""

    def _progress(self, ready: int, wanted: int) -> None:
        if time.monotonic() > self._told + _PAUSE_S:
            self._told = time.monotonic()
            self._tasks.progress(_READING, f"reading: {ready} of {wanted} files")

    def _named(self, recording: Recording) -> Recording:
        """With the names that the files had where they come from."""
        report = recording.report
        if report is None:
            return recording
        sources = tuple(replace(one, path=self._short(one.path)) for one in report.sources)
        return replace(recording, report=replace(report, sources=sources))

    def _short(self, text: str) -> str:
        for folder in self._folders:
            text = text.replace(f"{folder}/", "")
        return text
