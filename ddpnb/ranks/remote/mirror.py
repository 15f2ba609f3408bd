"""The files of ranks on another host, kept up to date on this one: what reads them need not know where ranks run."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ddpnb.ranks.remote.changes import PAGE, PAGED, unpacked
from ddpnb.ranks.remote.messages import of_start
from ddpnb.recorder.files import shared_files
from ddpnb.recording import blackbox, path_file, samples, status_file
from ddpnb.recording.files import make_folder, write_private

_SIZES = {
    "box": blackbox.BOX_SIZE,
    "samples": samples.FILE_SIZE,
    "path": path_file.FILE_SIZE,
    "status": status_file.SIZE,
}


class Mirror:
    """Writes what a look at a host has brought. It comes from another machine: names and sizes are checked.

    Args:
        folders: to which files may be written.
    """

    def __init__(self, *folders: str) -> None:
        self._folders = {*folders}
        #: how often each rank's process was started: memory-mapped files of earlier ones are not taken
        self.starts: dict[int, int] = {}

    def allow(self, folder: str) -> None:
        """Files may be written to this folder."""
        self._folders.add(folder)

    def folder(self, name: str) -> str:
        """Where the files of a folder of the host belong.

        Raises:
            ValueError: nowhere.
        """
        if name not in self._folders:
            raise ValueError(f"no folder of this world: {name!r:.60}")
        return name

    def take(self, look: dict[str, Any]) -> None:
        """Write the changes of a look.

        Raises:
            OSError: there is no room.
            ValueError, KeyError, TypeError: this is no look.
        """
        starts = {int(rank): count for rank, count in look["starts"].items()}
        for name, files in look["folders"].items():
            folder = self.folder(name)
            for paged, change in files["paged"]:
                match = PAGED.fullmatch(paged)
                if match is None or change["size"] != _SIZES[paged.rpartition(".")[2]]:
                    raise ValueError(f"no file of a rank: {paged!r:.60}")
                rank = int(match[1])
                if starts.get(rank) == self.starts.get(rank):
                    self._write(os.path.join(folder, paged), change)
            for other, offset, data in files["others"]:
                self._store(folder, other, int(offset), unpacked(data))

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


class JobMirror(Mirror):
    """Takes the files of the starts of process groups.

    Args:
        job: the folder of the job.
    """

    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job

    def folder(self, name: str) -> str:
        if not of_start(name):
            raise ValueError(f"no start of a process group: {name!r:.60}")
        folder = os.path.join(self._job, name)
        make_folder(folder)
        return folder
