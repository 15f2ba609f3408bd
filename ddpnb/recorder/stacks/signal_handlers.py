"""Exceptions that signal handlers raise: Python runs handlers anywhere, also while a hook runs, and what they raise is the user's."""

from __future__ import annotations

import inspect
import sys


def of_handler(error: BaseException) -> bool:
    """Whether a signal handler raised this: one of its arguments is the frame that it interrupted.

    The handler of Ctrl-C has no frame; what no ``except Exception`` catches is never a failure of a hook.
    """
    if not isinstance(error, Exception):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        given = inspect.getargvalues(trace.tb_frame)
        arguments = [*map(given.locals.get, given.args), *(given.locals.get(given.varargs or "") or ())]
        if any(argument is interrupted for argument in arguments):
            return True
    return False


def raise_if_of_handler() -> None:
    """Raise the exception that is being handled again if a signal handler raised it."""
    error = sys.exc_info()[1]
    if error is not None and of_handler(error):
        raise error
