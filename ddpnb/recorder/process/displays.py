"""What a cell displays on a rank: figures, HTML, Markdown, tables, the value of its last expression.

They go into a file of JSON lines beside the rank's log, which the notebook reads while the cell runs, so they are there
also when the rank hangs afterwards. The text of each is in the log too, for readers of text alone; a line says which bytes of
the log it stands for.

``display()``, matplotlib and progress bars ask IPython's shell. Inside a cell only IPython's own display functions find
one: all others find none, as in a plain process (``notebook.hidden``), and for instance ``tqdm.auto`` writes text.
"""

from __future__ import annotations

import ast
import io
import json
import os
import sys
import threading
import tokenize
import traceback
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ddpnb.recorder.process.process_state import flush
from ddpnb.recording.files import private, write_private
from ddpnb.recording.protocol import displays_of

MAX_BYTES = 16 << 20  # of the file; what is displayed at a time takes half of it at most
MAX_DISPLAYS = 256  # of a cell on one rank
_TEXT = "text/plain"
_LONGEST_TEXT = 1 << 20  # characters
_WIDGET = "application/vnd.jupyter.widget-view+json"  # its model is on the rank, where no page reaches it
_INLINE = "module://matplotlib_inline.backend_inline"
_MODULE = "IPython.core.interactiveshell"
_ASKED_BY = "display_functions.py"


@dataclass
class _Display:
    """A display as it is now: its line, and the name by which it is updated."""

    line: dict[str, Any]
    size: int


class Publisher:
    """Takes what is displayed, as the display publisher of a shell does.

    Args:
        path: the file of lines.
    """

    def __init__(self, path: str) -> None:
        self._path, self._pid, self._lock = path, os.getpid(), threading.RLock()
        self._shown: list[_Display] = []
        self._count = self._written = 0
        self._cleared = 0  # what the log has before this byte is not shown any more
        self._waiting: int | None = None  # the same, once something follows
        self._full = False

    def publish(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        *,
        transient: Mapping[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        """Take a display or an update. Text alone only goes to the log."""
        bundle, about = _plain(data), _plain(metadata or {})
        name = str((transient or {}).get("display_id") or "")[:200]
        with self._lock:
            if update:
                self._update(name, bundle, about)
                return
            start, end = self._text(str(bundle.get(_TEXT, "")))
            if (name or set(bundle) - {_TEXT}) and os.getpid() == self._pid:
                self._count += 1
                self._add({"new": name, "data": bundle, "metadata": about, "from": start, "to": end})

    def clear_output(self, wait: bool = False) -> None:
        """Remove what was shown so far; ``wait``: when something follows."""
        with self._lock:
            if os.getpid() != self._pid:
                return
            at = self._position()
            if not wait:
                self._shown.clear()
                self._cleared, self._waiting = at, None
            else:
                if self._waiting is not None and at > self._waiting:  # text followed
                    self._clear_waiting()
                self._waiting = at
            self._write(_clearing(at, wait=wait))

    def _clear_waiting(self) -> None:
        """What a clearing waited for has come."""
        if self._waiting is not None:
            self._shown.clear()
            self._cleared, self._waiting = self._waiting, None

    def _add(self, line: dict[str, Any]) -> None:
        self._clear_waiting()
        size = len(json.dumps(line))
        if self._count > MAX_DISPLAYS or size + sum(one.size for one in self._shown) > MAX_BYTES // 2:
            if not self._full:
                self._full = True
                self._text("ddpnb: too many displays in this cell: the following ones are shown as text.")
            return
        self._shown.append(_Display(line, size))
        self._write(line)

    def _update(self, name: str, bundle: dict[str, Any], about: dict[str, Any]) -> None:
        mine = [one for one in self._shown if name and one.line["new"] == name]
        if not mine or os.getpid() != self._pid:
            return
        size = len(json.dumps(bundle)) * len(mine)
        if size + sum(one.size for one in self._shown if one not in mine) > MAX_BYTES // 2:
            bundle = {_TEXT: str(bundle.get(_TEXT, ""))[:2000]}
        for one in mine:
            one.line |= {"data": bundle, "metadata": about}
            one.size = len(json.dumps(one.line))
        self._write({"update": name, "data": bundle, "metadata": about})

    def _write(self, line: dict[str, Any]) -> None:
        """Append a line; a file that would become too long is written again with what is still shown."""
        text = json.dumps(line) + "\n"
        with suppress(OSError):  # the disk is full: the text is in the log
            if self._written + len(text) > MAX_BYTES:
                lines = [_clearing(self._cleared, wait=False), *(one.line for one in self._shown)]
                lines += [_clearing(self._waiting, wait=True)] if self._waiting is not None else []
                text = "".join(json.dumps(one) + "\n" for one in lines)
                write_private(self._path, text)
                self._written = len(text)
                return
            with open(self._path, "a", encoding="utf-8", opener=private) as file:
                file.write(text)
            self._written += len(text)

    def _position(self) -> int:
        """How many bytes the log has, with what the cell has printed."""
        for stream in (sys.stdout, sys.stderr):
            flush(stream)
        try:
            return os.fstat(1).st_size
        except OSError:
            return 0

    def _text(self, text: str) -> tuple[int, int]:
        """Write a line to the log; between which bytes it is there."""
        start = self._position()
        if not text:
            return start, start
        content = f"{text[:_LONGEST_TEXT]}\n".encode("utf-8", "backslashreplace")
        with suppress(OSError):
            os.write(1, content)
            end = os.lseek(1, 0, os.SEEK_CUR)
            return end - len(content), end
        return start, start


class Displays:
    """Lets cells display.

    Args:
        shell: the shell of the engine, whose formatters are used.
    """

    def __init__(self, shell: Any) -> None:
        self.display_formatter = shell.display_formatter
        self.display_pub: Any = None  # of the cell that runs
        self._module = sys.modules[_MODULE]
        self._class = _finding(self, self._module.InteractiveShell)  # type: ignore[attr-defined]
        self._figures: Any = None

    @contextmanager
    def to(self, log: str) -> Iterator[None]:
        """Inside, displays go beside this log, whose output the process writes to its standard output."""
        self.display_pub = Publisher(displays_of(log))
        real = self._module.InteractiveShell  # type: ignore[attr-defined]
        self._module.InteractiveShell = self._class  # type: ignore[attr-defined]
        backend = "MPLBACKEND" not in os.environ
        if backend:
            os.environ["MPLBACKEND"] = _INLINE
        try:
            yield
        finally:
            self._module.InteractiveShell = real  # type: ignore[attr-defined]
            self.display_pub = None
            if backend and os.environ.get("MPLBACKEND") == _INLINE:
                del os.environ["MPLBACKEND"]

    def value(self, value: Any) -> None:
        """Show the value of a last expression."""
        self.prepare_figures()
        data, metadata = self.display_formatter.format(value)
        if data:  # else the object has displayed itself
            self.display_pub.publish(data, metadata)

    def end(self) -> None:
        """The cell has ended: show the figures that are open. Never raises."""
        inline: Any = sys.modules.get(_INLINE.removeprefix("module://"))
        try:
            if inline is not None and inline.Gcf.get_all_fig_managers():
                self.prepare_figures()
                inline.show(True)
        except Exception:  # a figure that cannot be drawn
            traceback.print_exc()

    def prepare_figures(self) -> None:
        """Let figures of matplotlib be formatted as pictures, once it is imported."""
        figure: Any = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
        if figure is not None and figure is not self._figures:
            self._figures = figure
            with suppress(Exception):
                from IPython.core.pylabtools import select_figure_formats

                select_figure_formats(self, {"png"}, bbox_inches="tight")


def _clearing(at: int, *, wait: bool) -> dict[str, Any]:
    return {"clear": wait, "at": at}


def _finding(displays: Displays, real: Any) -> Any:
    """A class of shells of which IPython's display functions find one, and nobody else any."""

    class InteractiveShell(real):
        @classmethod
        def initialized(cls) -> bool:
            if displays.display_pub is None:
                return real.initialized()
            shown = os.path.basename(sys._getframe(1).f_code.co_filename) == _ASKED_BY
            if shown:
                displays.prepare_figures()
            return shown

        @classmethod
        def instance(cls, *args: Any, **kwargs: Any) -> Any:
            return displays if displays.display_pub is not None else real.instance(*args, **kwargs)

    return InteractiveShell


def is_quiet(source: str) -> bool:
    """Whether the last expression of a cell ends with a semicolon: its value is not shown."""
    with suppress(tokenize.TokenError, SyntaxError):
        kinds = {tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER, tokenize.DEDENT, tokenize.INDENT}
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        return [token.string for token in tokens if token.type not in kinds][-1:] == [";"]
    return False


def last_expression(tree: ast.Module, source: str) -> ast.Expr | None:
    """Take the last statement from the tree if it is an expression whose value is to be shown."""
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or is_quiet(source):
        return None
    tree.body.pop()
    return last


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """What can be sent as JSON: bytes of pictures in base64; a widget is left out."""
    found: dict[str, Any] = {}
    for kind, value in dict(values).items():
        if type(kind) is not str or kind == _WIDGET:
            continue
        content = b64encode(value).decode() if isinstance(value, bytes) else value
        with suppress(TypeError, ValueError, RecursionError):
            found[kind[:200]] = json.loads(json.dumps(content))
    return found
