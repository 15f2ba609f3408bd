"""Where a link to the code leads: to a file that the server of the page has, to a cell, or to a text that is shown."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ddpnb.render.markup import short
from ddpnb.texts import printable, relative

if TYPE_CHECKING:
    from ddpnb.notebook.widgets.view import View

_CELL = re.compile(r"(?:^|/)In\[(\d{1,9})\](?:\.py)?$")
_LONGEST, _DIGITS = 4000, 10  # characters of a path, and of a line
_CHARACTERS = 4 << 20  # of a file that are read
_AROUND = 1000  # lines before and after that are sent
_WIDEST = 400  # characters of a line


def go(view: View, values: object, sources: Mapping[str, str], names: Callable[[str, int], bool]) -> None:
    """Say where a link of the page leads: only one to a line that the view ``names``, so that the page reads no other file."""
    if not isinstance(values, Mapping):
        return
    file, line, root = (str(values.get(name, ""))[:_LONGEST] for name in ("file", "line", "root"))
    if line.isdecimal() and len(line) < _DIGITS and names(file, int(line)):
        view.send(answer(file, int(line), root, sources))


def answer(file: str, line: int, root: str, sources: Mapping[str, str]) -> dict[str, Any]:
    """What the page needs to show a line.

    Args:
        file: an absolute path.
        line: from 1.
        root: the folder that the server of the page serves; empty: not known.
        sources: texts of files as the ranks ran them; of other files, what is on the disk now.

    Returns:
        ``path`` below ``root``, or ``cell`` (its number in the notebook), both None for what only ``lines`` can show:
        the text around the line, beginning with line ``first``. ``said`` is what is missing, in words.
    """
    cell = _CELL.search(file)
    shown = relative(file)
    text, said = sources.get(file), ""
    if text is None:
        try:
            text = _read(file)
        except OSError as error:
            text, said = "", f"cannot be read here: {error.strerror}"
    lines = printable(text[:_CHARACTERS]).split("\n")
    first = max(1, line - _AROUND)
    part = lines[first - 1 : line + _AROUND]
    if len(text) >= _CHARACTERS:
        said = said or "only the beginning of this file can be shown"
    elif not said and len(part) < len(lines):
        said = f"lines {first}-{first + len(part) - 1} of {len(lines)}"
    return {
        "kind": "place",
        "path": None if cell else _path(file, root),
        "cell": int(cell[1]) if cell else None,
        "file": file,
        "title": short(shown),
        "line": line,
        "first": first,
        "lines": [one[:_WIDEST] for one in part],
        "said": said,
    }


class _Data(dict[str, Any]):
    """What a page that asks the kernel by an expression gets as data."""

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        del kwargs
        return {"application/json": dict(self), "text/plain": ""}


def text(file: str, line: int, root: str) -> dict[str, Any]:
    """``answer()`` for a link in an output, of what is on the disk now: the extension of JupyterLab asks for it."""
    return _Data(answer(file, line, root, {}))


def written(file: str, root: str) -> dict[str, Any]:
    """Where a file is that was written, for a page whose server serves ``root``: ``path`` as for ``answer()``."""
    return {"kind": "place", "path": _path(file, root), "cell": None, "file": file, "line": 1, "lines": [""]}


def _read(file: str) -> str:
    if not os.path.isfile(file):  # a pipe or a device would block
        raise FileNotFoundError(errno.ENOENT, "no such file")
    with open(file, "rb") as opened:
        return opened.read(4 * _CHARACTERS).decode("utf-8", "replace")


def _path(file: str, root: str) -> str | None:
    """The path of a file on the server, which serves no hidden ones; None if it is not below its root."""
    if not root:
        return None
    path = os.path.relpath(os.path.realpath(file), os.path.realpath(os.path.expanduser(root)))
    hidden = any(part.startswith(".") for part in path.split(os.sep))  # .. too
    return None if hidden or not os.path.isfile(file) else path.replace(os.sep, "/")
