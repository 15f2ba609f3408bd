"""The files of ranks on another host, kept up to date on this one: what reads them need not know where ranks run."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ddpnb.files import make_folder, write_private
from ddpnb.model import blackbox, path_file, samples, status_file
from ddpnb.processes.remote.changes import PAGE, PAGED, unpacked
from ddpnb.recorder import shared_files

_SIZES = {
    "box": blackbox.BOX_SIZE,
    "samples": samples.FILE_SIZE,
    "path": path_file.FILE_SIZE,
    "status": status_file.SIZE,
}


class Mirror:
    """Writes what a look at a host has brought. It comes from another machine: names and sizes are checked.

    Args:
        memory: the folder with the memory-mapped files.
    """

    def __init__(self, memory: str) -> None:
        self._memory = memory
        self._roots: set[str] = {memory}
        self.starts: dict[
            int, int
        ] = {}  # how often each rank's process was started: files of earlier ones are not taken

    def allow(self, folder: str) -> None:
        """Files may be written to this folder."""
        self._roots.add(folder)

    def take(self, look: dict[str, Any]) -> None:
        """Write the changes of a look.

        Raises:
            OSError: there is no room.
            ValueError, KeyError, TypeError: this is no look.
        """
        starts = {int(rank): one["start"] for rank, one in look["ranks"].items()}
        for name, change in look["paged"]:
            match = PAGED.fullmatch(name)
            if match is None or change["size"] != _SIZES[name.rpartition(".")[2]]:
                raise ValueError(f"no file of a rank: {name!r:.60}")
            rank = int(match[1])
            if starts.get(rank) == self.starts.get(rank):
                self._write(os.path.join(self._memory, name), change)
        for root, found in zip(look["roots"], look["others"], strict=True):
            if root not in self._roots:
                raise ValueError(f"no folder of this world: {root!r:.60}")
            for name, offset, data in found:
                self._store(root, name, int(offset), unpacked(data))

    def _write(self, path: str, change: dict[str, Any]) -> None:
        pages = sorted(((int(page), unpacked(data)) for page, data in change["pages"]), reverse=True)
        if any(not 0 <= page * PAGE <= change["size"] - len(data) or len(data) > PAGE for page, data in pages):
            raise ValueError("a page that is not in its file")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            fd = shared_files.create(path, change["size"])
        try:
            for page, data in pages:  # the counters of the first page come last
                os.pwrite(fd, data, page * PAGE)
        finally:
            os.close(fd)

    def _store(self, root: str, name: str, offset: int, data: bytes) -> None:
        path = os.path.normpath(os.path.join(root, name))
        if os.path.isabs(name) or os.path.commonpath([path, root]) != root or path == root:
            raise ValueError(f"not below its folder: {name!r:.60}")
        make_folder(os.path.dirname(path))
        if offset >= 0:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with contextlib.closing(os.fdopen(fd, "wb")) as file:
                file.seek(offset)
                file.write(data)
            return
        write_private(path, data)
