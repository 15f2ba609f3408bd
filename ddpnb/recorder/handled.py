"""Exceptions that the user's code catches: where they were raised, which the line of a handler does not tell."""

from __future__ import annotations

from ddpnb.model.calls import Site
from ddpnb.model.events.runs import Caller, ExceptionHandled
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.user_frames import is_user_file

_MOST = 64  # in a run


class Handled:
    """Records each exception once, when a line of a handler runs for the first time."""

    def __init__(self, box: BlackBox) -> None:
        self.box = box
        self.new_run()

    def new_run(self) -> None:
        self._last: tuple[int, Caller] | None = None
        self._count = 0

    def record(self, error: BaseException, site: Site) -> None:
        """``site`` runs for the first time, while ``error`` is being handled."""
        raised = _raised(error)
        if raised is None or self._count >= _MOST or self._last == (id(error), raised):
            return
        self._last = id(error), raised
        self._count += 1
        self.box.emit(ExceptionHandled(exception=type(error).__name__, raised=raised, site=site))


def _raised(error: BaseException) -> Caller | None:
    """The innermost line of the user's in the traceback."""
    found, trace = None, error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_user_file(code.co_filename):
            found = Caller(file=code.co_filename, line=trace.tb_lineno, function=code.co_name)
        trace = trace.tb_next
    return found
