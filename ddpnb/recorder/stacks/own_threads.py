"""Threads of the recorder, which a debugger of the user's must not stop: they answer while the program is stopped."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

_NAMES = "ddpnb"  # what the name of each begins with
_PYDEVD = "_pydevd_sys_monitoring.pydevd_sys_monitoring"


def own_thread(work: Callable[..., Any], name: str, args: tuple[Any, ...] = ()) -> threading.Thread:
    """A daemon thread of the recorder, which is not started yet."""
    return _left_alone(threading.Thread(target=_untraced, name=name, args=(work, *args), daemon=True))


def _untraced(work: Callable[..., Any], *args: Any) -> None:
    """Do the work. pydevd may have taken the thread for one without a name, before ``threading`` knew it (debugpy 1.8)."""
    if (pydevd := sys.modules.get(_PYDEVD)) is not None:
        getattr(pydevd, "suspend_current_thread_tracing", int)()
    work(*args)


def leave_own_threads_alone() -> None:
    """The same for all threads of the recorder that run now."""
    for thread in threading.enumerate():
        if thread.name.startswith(_NAMES):
            _left_alone(thread)


def _left_alone(thread: threading.Thread) -> threading.Thread:
    """What pydevd, the debugger in debugpy, looks at before it stops or traces a thread."""
    vars(thread).update(is_pydev_daemon_thread=True, pydev_do_not_trace=True)
    return thread
