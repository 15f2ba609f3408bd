"""Progress display: one line on a terminal, one display in a notebook."""

# pyright: standard
from __future__ import annotations

import contextlib
import sys
import time
from types import TracebackType
from typing import Any


class Progress:
    """Shows ``what: ready/wanted``; silent if there is no terminal and no notebook.

    Args:
        what: is done.
        wanted: how many there are.
        quiet: show nothing.
        after_s: show nothing of what takes no longer.
    """

    def __init__(self, what: str, wanted: int, quiet: bool = False, after_s: float = 0.0) -> None:
        self._what = what
        self._wanted = wanted
        self._began = time.monotonic()
        self._after_s = after_s
        self._display: Any = None
        self._terminal = not quiet and sys.stderr.isatty()
        ipython = sys.modules.get("IPython")
        self._notebook = (
            not quiet and ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"
        )

    def __enter__(self) -> Progress:
        if not self._after_s:
            self._show(f"{self._what} ...")
        return self

    def update(self, ready: int, wanted: int) -> None:
        self._show(f"{self._what}: {ready}/{wanted} ready")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.monotonic() - self._began
        self._show(f"{self._what}: {'ready' if kind is None else 'stopped'} after {seconds:.1f} s", last=True)

    def _show(self, text: str, last: bool = False) -> None:
        if time.monotonic() < self._began + self._after_s:
            return
        if self._notebook:
            from IPython.display import display

            content = {"text/plain": text}
            if self._display is None:
                self._display = display(content, raw=True, display_id=True)
            elif self._display is not None:
                self._display.update(content, raw=True)
        elif self._terminal:
            end = "\n" if last else ""
            with contextlib.suppress(OSError, ValueError):  # the terminal was closed
                print(f"\r\x1b[Kddpnb: {text}", end=end, file=sys.stderr, flush=True)
