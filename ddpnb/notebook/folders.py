"""What is in a folder: where a script can be chosen from."""

from __future__ import annotations

import os
from dataclasses import dataclass

MOST = 4000  # entries that are listed


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of this machine: absolute path, names of its folders and of its Python files, sorted.

    ``error``: why it cannot be read; ``left_out``: entries beyond ``MOST``.
    """

    path: str
    folders: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    left_out: int = 0
    error: str = ""


def look(path: str) -> Folder:
    """The folder at this path, ``~`` and ``..`` resolved; of a file, the folder that it is in. Hidden entries are left out.

    Example:
        >>> look("/").path
        '/'
    """
    at = os.path.abspath(os.path.expanduser(path))
    if os.path.isfile(at):
        at = os.path.dirname(at)
    try:
        with os.scandir(at) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".") and entry.name != "__pycache__"]
            folders = sorted(entry.name for entry in shown if entry.is_dir())
            scripts = sorted(entry.name for entry in shown if entry.name.endswith(".py") and entry.is_file())
    except (OSError, ValueError) as error:  # ValueError: a null byte
        return Folder(at, error=getattr(error, "strerror", None) or str(error))
    left_out = max(0, len(folders) + len(scripts) - MOST)
    scripts = scripts[:MOST]
    return Folder(at, tuple(folders[: MOST - len(scripts)]), tuple(scripts), left_out)
