"""A place where files are dropped, chosen or named: the page sends them in parts, which are kept in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import traitlets

from ddpnb.notebook.widgets.view import View, module, styles
from ddpnb.recording.files import make_folder, private

MOST_FILES = 4096
MOST_BYTES = 1 << 30  # of the files that are dropped together
_DEPTH = 8  # folders of a path that are kept
_LONGEST = 120  # characters of a part of a path
_UNSAFE = re.compile(r"[^\w .,+=@()\[\]-]")

Received = Callable[[str, list[str]], None]


@dataclass(slots=True)
class _File:
    """One that is being received: where it goes, the size that was announced, and how much of it is there."""

    path: str
    size: int
    ready: int = 0


class FileDrop(View):
    """A place to drop files and folders, with buttons to choose them and a field for a path.

    What the page sends is not trusted: names become plain relative paths, sizes and numbers have bounds.

    Args:
        on_files: called with the folder in which received files are, and their paths in it; it is removed
            with this widget. It must return quickly.
        on_path: called with the path that was typed.
    """

    _esm = module("hearing.js", "keys.js", "file_drop.js")
    _css = styles()
    label = traitlets.Unicode("files", help="for screen readers").tag(sync=True)
    hint = traitlets.Unicode("Drop files here").tag(sync=True)
    busy = traitlets.Unicode("", help="what is done with the files").tag(sync=True)
    said = traitlets.Unicode("", help="what went wrong").tag(sync=True)

    def __init__(self, on_files: Received, on_path: Callable[[str], None], **traits: Any) -> None:
        super().__init__(self._typed, **traits)
        self._on_files, self._on_path = on_files, on_path
        self._lock = threading.Lock()
        self._id: object = None  # of the files that are being received
        self._folder = ""
        self._files: list[_File] = []

    @property
    def text(self) -> str:
        return self.said or self.busy

    def _typed(self, action: str, values: Mapping[str, str]) -> None:
        path = values.get("path", "").strip()
        if action == "read" and path:
            self._on_path(path)

    def _take(self, widget: object, content: Any, buffers: Any) -> None:
        if not isinstance(content, Mapping) or "kind" not in content:
            super()._take(widget, content, buffers)
            return
        with self._lock:
            try:
                done = self._receive(content, buffers)
            except (ValueError, TypeError, KeyError, IndexError, OSError) as error:
                self._id = None
                self.said = f"The files were not received: {error}"
                self.send({"kind": "refused", "id": content.get("id")})
                return
        self.send({"kind": "next", "id": content.get("id")})
        if done is not None:
            self._on_files(*done)

    def _receive(self, content: Mapping[str, Any], buffers: Any) -> tuple[str, list[str]] | None:
        """Take one message; what is returned is complete.

        Raises:
            ValueError, TypeError, KeyError, IndexError: it is not as announced, or there is too much.
            OSError: the disk is full.
        """
        kind = content["kind"]
        if kind == "begin":
            self._begin(content["id"], content["files"])
            return None
        if self._id is None or content["id"] != self._id:
            raise ValueError("other files were given meanwhile.")
        if kind == "part":
            self._part(self._files[int(content["file"])], int(content["offset"]), buffers[0])
            return None
        if any(one.ready != one.size for one in self._files):
            raise ValueError("they are not complete.")
        self._id = None
        return self._folder, [os.path.relpath(one.path, self._folder) for one in self._files]

    def _begin(self, given: object, files: Sequence[Mapping[str, Any]]) -> None:
        self._id, self.said = None, ""
        if len(files) > MOST_FILES:
            raise ValueError(
                f"{len(files)} files are too many: give at most {MOST_FILES}, or the path of their folder."
            )
        sizes = [int(one["size"]) for one in files]
        if min(sizes, default=0) < 0 or sum(sizes) > MOST_BYTES:
            raise ValueError(f"they are larger than {MOST_BYTES >> 20} MiB: give their path instead.")
        self._folder, self._files = os.path.realpath(tempfile.mkdtemp(prefix="ddpnb-files-")), []
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        for one, size in zip(files, sizes, strict=True):
            path = self._free(plain(str(one["path"])))
            make_folder(os.path.dirname(path))
            with open(path, "xb", opener=private):
                self._files.append(_File(path, size))
        self._id = given

    def _free(self, name: str) -> str:
        """Where a file of this name goes; a second one of the same name gets a number."""
        folder, base = os.path.split(name)
        taken = {one.path for one in self._files}
        tries = (os.path.join(self._folder, folder, base if not n else f"{n}-{base}") for n in range(MOST_FILES + 1))
        return next(path for path in tries if path not in taken)

    def _part(self, file: _File, offset: int, part: Any) -> None:
        size = memoryview(part).nbytes
        if offset != file.ready or offset + size > file.size:
            raise ValueError("a part is missing.")
        with open(file.path, "ab") as opened:
            opened.write(part)
        file.ready += size


def plain(path: str) -> str:
    r"""A relative path of safe names: no way out of a folder, no control characters.

    Example:
        >>> plain("../dumps/rank\t0.pkl")
        'dumps/rank_0.pkl'
    """
    parts = (_UNSAFE.sub("_", part).strip() for part in re.split(r"[/\\]", path[-4096:]))
    kept = [part[:_LONGEST] for part in parts if part.strip(".")]
    return "/".join(kept[-_DEPTH:]) or "file"
