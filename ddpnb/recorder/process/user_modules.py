"""The modules of the user's project: a script imports them again, a function only after they were edited."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

from ddpnb.recorder.stacks.user_frames import is_user_file


class UserModules:
    """Decides which of the loaded modules a run begins with."""

    def __init__(self) -> None:
        self._began = self._ended = time.time_ns()
        self._before: frozenset[str] = frozenset()  # what was loaded when the run began
        self._are_scripts = False
        self._known: dict[str, tuple[int, int]] = {}  # by name: not older than this, and when its file was written
        self._forgotten: dict[str, int] = {}  # when the file of a module was written that was forgotten

    def begin(self) -> None:
        """A run begins."""
        self._began = time.time_ns()
        self._before = frozenset(sys.modules)

    def forget(self, *, everything: bool) -> None:
        """Forget the modules of the last script; others if one was edited since its import, or if that is asked for."""
        paths = _loaded()
        if everything or self._are_scripts or any(self._edited(name, path) for name, path in paths.items()):
            self._known.clear()
            for name, path in paths.items():
                self._forgotten[name] = _written(path)
                del sys.modules[name]

    def end(self, *, is_script: bool, raised: bool = False) -> None:
        """The run is over: what it has imported is known from here on.

        Args:
            is_script: it was a script.
            raised: an exception has ended it, perhaps in an import: Python then keeps the modules of the package that were
                complete, and would import the package without them.
        """
        if raised:
            new = [name for name in list(sys.modules) if name not in self._before]
            for name in [name for name in new if _is_left_over(name)]:
                sys.modules.pop(name, None)
        self._ended, self._are_scripts = time.time_ns(), is_script
        with suppress(OSError):  # the code has used up all file descriptors: the next run looks
            for name, path in _loaded().items():
                written, began = _written(path), self._began
                if written == self._forgotten.get(name):
                    # Not edited since before this import, even if the time of the file is in the future: the clock was
                    # set back, or that of a file server is ahead.
                    began = max(began, written)
                self._known.setdefault(name, (began, written))

    def _edited(self, name: str, path: str) -> bool:
        if not path.endswith(".py"):
            return False  # a package without a file
        # Imported by nothing that we ran (%px): then it was edited if that was since the last run.
        began, before = self._known.setdefault(name, (self._ended, _written(path)))
        return before > began or _written(path) != before


def _is_left_over(name: str) -> bool:
    """Whether a package that this module is in is not loaded."""
    package = name.rpartition(".")[0]
    return bool(package) and (package not in sys.modules or _is_left_over(package))


def forget_loaded() -> None:
    """Forget all modules of the user: what needs one imports it again."""
    for name in _loaded():
        sys.modules.pop(name, None)


def _loaded() -> dict[str, str]:
    """The names of the user's modules that are loaded, with the file or folder of each."""
    # A package without an __init__.py has no file, and asks its parent for its path: all are looked at first.
    paths = {
        name: getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
        for name, module in list(sys.modules.items())
    }
    return {
        name: path
        for name, path in paths.items()
        if name != "__main__" and isinstance(path, str) and is_user_file(path)
    }


def _written(path: str) -> int:
    with suppress(OSError, ValueError):
        return os.stat(path).st_mtime_ns
    return 0
