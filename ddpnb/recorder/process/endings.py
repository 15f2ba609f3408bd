"""Records how the program of a plain process ends: its last exception, and the exit status.

Only what happens in this process can be seen here; a process that is killed leaves nothing, which says it too.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, ModuleType, TracebackType
from typing import Any, NoReturn

from ddpnb.recorder.files.clock import now_ns
from ddpnb.recorder.files.status_page import StatusPage
from ddpnb.recorder.process import exit_codes
from ddpnb.recording import status_file
from ddpnb.recording.descriptors import out_of_the_way
from ddpnb.recording.files import private, write_private

_TICK_S = 0.02
_KNOWN_S = 1.0  # for a launcher on another host to learn how this process ends


class Endings:
    """Writes ``rank0.status``, ``rank0.end.json`` and ``rank0.crash`` (see ``recorder.protocol``).

    Only the C library sees the status of every exit: ``raise SystemExit(3)`` passes no hook of Python. So nothing here
    keeps a process that ends, but for a moment (``is_known``): its parent may act on the status.

    Args:
        folder: for these files.
        rank: of this process.
    """

    def __init__(self, folder: str, rank: int) -> None:
        self._path = os.path.join(folder, f"rank{rank}")
        self._pid = os.getpid()
        self._ending: dict[str, Any] = {"how": "finished", "code": 0}
        self._written = False
        self._page = StatusPage(status_file.path_of(folder, rank))
        #: of the recorder, once there is one: how to describe an exception; called before the ending is written
        self.describe: Callable[[BaseException], dict[str, Any]] | None = None
        self.at_end: Callable[[dict[str, Any]], None] | None = None
        #: called when the program has ended, for all that is known without a failure
        self.leaves: Callable[[], None] = lambda: None
        #: whether the launcher knows the ending: with the last rank of a host, a scheduler ends what would tell it
        self.is_known: Callable[[], bool] = lambda: True

    def install(self) -> None:
        """From now on the end of this process is recorded."""
        self._except, self._exit, self._exit_now = sys.excepthook, sys.exit, os._exit
        sys.excepthook = self._excepthook
        sys.exit = _by_name(sys, "exit", self._sys_exit)
        os._exit = _by_name(os, "_exit", self._os_exit)
        self._print, traceback.print_exc = traceback.print_exc, _by_name(traceback, "print_exc", self._print_exc)
        atexit.register(self.finish)
        self._page.follow_exit()
        self._crashes_to_file()
        os.register_at_fork(after_in_child=self._forked)
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:  # forked, it runs no atexit callbacks
            from multiprocessing.util import Finalize

            Finalize(None, self.finish, exitpriority=0)

    def _crashes_to_file(self) -> None:
        """Have the stack of a crash in native code written down; a program that wants it elsewhere says so itself."""
        with suppress(OSError):
            if not faulthandler.is_enabled():
                # It is written to by number, and never closed: by then it may be a file of the program.
                faulthandler.enable(
                    out_of_the_way(private(f"{self._path}.crash", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
                )

    def _forked(self) -> None:
        """The end of a forked child is not that of this rank."""
        self._written = True
        self._page.leave()

    # -- what is noticed

    def _excepthook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        mine = os.getpid() == self._pid
        if mine:
            self._raised(error)
            with suppress(Exception):
                _drop_own_frames(error)
                trace = error.__traceback__
        if mine and self._ending.get("message") and _said_by_ddpnb(error):
            print(self._ending["traceback"], end="", file=sys.stderr)
        else:
            self._except(kind, error, trace)

    def _sys_exit(self, status: Any = None, /) -> None:
        # In another thread it ends only that thread.
        if os.getpid() == self._pid and threading.current_thread() is threading.main_thread():
            handled = sys.exc_info()[1]  # multiprocessing reports an exception, and exits inside its handler
            by_multiprocessing = _of_multiprocessing(sys._getframe(2).f_code.co_filename)
            if status and isinstance(handled, Exception) and by_multiprocessing:
                self._raised(handled)
            elif self._ending["how"] != "raised" and not by_multiprocessing:
                self._ending = {"how": "exited", **exit_codes.told(status)}
                self._ending["frames"] = _calling_frames(sys._getframe(2))
                if isinstance(status, str):
                    self._ending["message"] = status[:4000]
        self._exit(status)

    def _print_exc(self, *args: Any, **options: Any) -> None:
        """multiprocessing prints the exception of a process's function; from Python 3.13 on it is handled before ``finish``."""
        code, error = sys._getframe(2).f_code, sys.exc_info()[1]
        ends = code.co_name == "_bootstrap" and _of_multiprocessing(code.co_filename) and os.getpid() == self._pid
        if ends and error is not None and self._ending["how"] != "raised":
            self._raised(error)
        self._print(*args, **options)

    def _os_exit(self, status: int) -> NoReturn:
        """A forked process of multiprocessing ends like this too."""
        if os.getpid() == self._pid and isinstance(status, int) and -(1 << 31) < status < 1 << 31:
            self._page.set_status(status)
        self._exit_now(status)

    def _raised(self, error: BaseException) -> None:
        self._ending = {"how": "raised", "code": 1, "exception": type(error).__name__, "message": ""}
        with suppress(BaseException):  # of the user's exception class
            if self.describe is not None:
                self._ending |= self.describe(error)
            else:
                self._ending |= _plain_description(error)
        self._write()

    def finish(self) -> None:
        """The program has ended; only its exit status is not known yet."""
        if os.getpid() != self._pid or self._written:
            return
        handled = sys.exc_info()[1]  # multiprocessing ends a child while the exception of its function is on its way
        last = handled if isinstance(handled, Exception) else getattr(sys, "last_value", None)
        if self._ending["how"] != "raised" and isinstance(last, BaseException):
            self._raised(last)  # or a script has replaced sys.excepthook
        self._write()
        self._written = True
        if self._ending["how"] != "raised" and not self._ending["code"]:
            with suppress(Exception):
                self.leaves()
        deadline = time.monotonic() + _KNOWN_S
        with suppress(KeyboardInterrupt):
            while not self.is_known() and time.monotonic() < deadline:
                time.sleep(_TICK_S)

    def _write(self) -> None:
        self._ending["at_ns"] = now_ns()
        at_end, self.at_end = self.at_end, None
        if at_end is not None:
            with suppress(Exception):
                at_end(self._ending)
        with suppress(OSError, ValueError, TypeError):  # the page has what must be known
            write_private(f"{self._path}.end.json", json.dumps(self._ending))
        self._page.write(self._ending)


def _by_name(module: ModuleType, name: str, replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement as a function that is pickled by its name, as the one in whose place it stands."""

    @functools.wraps(getattr(module, name))
    def replaced(*args: Any, **options: Any) -> Any:
        return replacement(*args, **options)

    replaced.__module__ = module.__name__  # that of os._exit is posix
    return replaced


def _said_by_ddpnb(error: BaseException) -> bool:
    """Whether it is an exception of ours that says all in one line: of the fence, or of a release."""
    errors: Any = sys.modules.get("ddpnb.errors")
    return errors is not None and isinstance(error, (errors.CollectiveMismatch, errors.Released))


def _drop_own_frames(error: BaseException | None) -> None:
    """Take the frames of our hooks out of the tracebacks that are about to be printed."""
    from ddpnb.recorder.stacks.user_frames import is_own_frame

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        kept: list[TracebackType] = []
        trace = error.__traceback__
        while trace is not None:
            if not is_own_frame(trace.tb_frame):
                kept.append(trace)
            trace = trace.tb_next
        for outer, inner in zip(kept, [*kept[1:], None], strict=False):
            outer.tb_next = inner
        error.__traceback__ = kept[0] if kept else None
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _of_multiprocessing(file: str) -> bool:
    return f"{os.sep}multiprocessing{os.sep}" in file


def _calling_frames(frame: Any) -> list[dict[str, Any]]:
    """The frames that called ``sys.exit``, outermost first."""
    from ddpnb.recorder.stacks.user_frames import is_own_frame

    frames: list[dict[str, Any]] = []
    while frame is not None and len(frames) < 64:
        if not is_own_frame(frame):
            frames.append(_entry(frame, frame.f_lineno))
        frame = frame.f_back
    return frames[::-1]


def _plain_description(error: BaseException) -> dict[str, Any]:
    """An exception before there is a recorder, whose description also has the variables."""
    from ddpnb.recorder.stacks.user_frames import is_own_frame

    frames = [
        _entry(frame, line)
        for frame, line in list(traceback.walk_tb(error.__traceback__))[-64:]
        if not is_own_frame(frame) and not frame.f_code.co_filename.startswith("<frozen")
    ]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append({"file": error.filename, "line": error.lineno or 0, "function": "<module>", "user": True})
    text = "".join(traceback.format_exception(error))
    return {"message": str(error)[:4000], "frames": frames, "traceback": text[-30_000:]}


def _entry(frame: FrameType, line: int | None) -> dict[str, Any]:
    from ddpnb.recorder.stacks.user_frames import is_user_frame

    code = frame.f_code
    return {"file": code.co_filename, "line": line or 0, "function": code.co_name, "user": is_user_frame(frame)}
