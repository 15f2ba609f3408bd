"""Exceptions that do not end the program: where those were raised that the user's code catches, or that end a thread."""

from __future__ import annotations

import threading

from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.stacks.user_frames import is_user_frame
from ddpnb.recording.calls import Site
from ddpnb.recording.events.runs import Caller, ExceptionHandled, ThreadFailed

_MOST = 64  # in a run
_LINES = 2  # of each
_LONGEST = 100  # characters of a name


class Handled:
    """Records an exception when lines run after it was handled for the first time at a place.

    The first may be that of an ``except`` which does not handle it, so that two lines of each exception are recorded.
    """

    def __init__(self, box: BlackBox) -> None:
        self.box = box
        self.new_run()

    def new_run(self) -> None:
        self._last: tuple[int, Caller] | None = None
        self._lines = 0  # of that one
        self._count = 0

    def record(self, error: BaseException, site: Site) -> None:
        """``site`` runs while ``error`` is being handled."""
        raised = _raised(error)
        if raised is None or self._count >= _MOST:
            return
        again = self._last == (id(error), raised)
        self._lines = self._lines + 1 if again else 1
        if self._lines > _LINES:
            return
        self._last = id(error), raised
        self._count += 1
        self.box.emit(ExceptionHandled(exception=type(error).__name__, raised=raised, site=site))


class FailedThreads(Hooks):
    """Records threads that an exception ended: nobody does any more what other threads wait for."""

    def install(self) -> None:
        self.before(threading, "excepthook", self._fails)

    def _fails(self, args: threading.ExceptHookArgs) -> None:
        raised = _raised(args.exc_value) if args.exc_value is not None else None
        if raised is not None and not issubclass(args.exc_type, SystemExit):
            name = args.thread.name if args.thread is not None else ""
            site = Site(raised.file, raised.line, raised.function)
            self.box.emit(ThreadFailed(thread=name[:_LONGEST], exception=args.exc_type.__name__, site=site))


def _raised(error: BaseException) -> Caller | None:
    """The innermost line of the user's in the traceback."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if is_user_frame(trace.tb_frame):
            code = trace.tb_frame.f_code
            found = Caller(file=code.co_filename, line=trace.tb_lineno, function=code.co_name)
        trace = trace.tb_next
    return found
