"""An IDE that debugs this rank: debugpy listens on request, and a rank that an IDE has stopped counts as held.

A stopped rank waits in debugpy. That is written into the black box, so that nobody calls it a hang, however long it takes.
When the IDE disconnects, debugpy lets all threads continue, also if the connection breaks.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ddpnb.errors import UsageError
from ddpnb.recorder.stacks.evaluation import sentence
from ddpnb.recorder.stacks.own_threads import leave_own_threads_alone, own_thread
from ddpnb.recording import verbs
from ddpnb.recording.calls import Site
from ddpnb.recording.events.runs import Held

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ddpnb.recorder.files.blackbox import BlackBox
    from ddpnb.recorder.holds.breakpoints import Gate

_LOOPBACK = "127.0.0.1"
_TICK_S, _IDLE_S = 0.05, 0.1  # between two looks whether the rank is stopped, or an IDE is connected
_WAITS = "do_wait_suspend"  # the function of pydevd in which a stopped thread waits
_DEEP = 16  # frames of debugpy above the line at which a thread is stopped
_VALIDATION = "PYDEVD_DISABLE_FILE_VALIDATION"  # without it, a warning appears in the output of the program
_CONNECTED = "an IDE is connected (debugpy)"


class Ide:
    """debugpy in this rank, once it was asked for.

    Args:
        box: of this rank.
        gate: whose state names the IDE: time-outs stay suspended while it is connected.
        serve: takes what answers a request.
    """

    def __init__(self, box: BlackBox, gate: Gate, serve: Callable[[type[Any], Callable[[Any], Any]], None]) -> None:
        self._box, self._gate = box, gate
        self._lock = threading.Lock()
        self._starts = False
        self._port, self._error = 0, ""
        self._record = -1  # in the black box, of the thread that is stopped
        self._stopped: Held | None = None
        self._connected = False
        serve(verbs.Debugpy, lambda _: self._listening())
        serve(verbs.Gate, lambda _: self._state())

    def _listening(self) -> verbs.DebugpyState:
        """Its port; it takes a second to start, which a request does not wait for.

        Raises:
            UsageError: debugpy is not installed for this interpreter.
        """
        if find_spec("debugpy") is None:
            raise UsageError(f"debugpy is not installed for {sys.executable}: pip install debugpy")
        with self._lock:
            error, self._error = self._error, ""
            if not self._starts and not error:
                self._starts = True
                own_thread(self._start, "ddpnb debugpy").start()
        return verbs.DebugpyState(port=self._port, error=error)

    def _state(self) -> verbs.GateState:
        state = verbs.GateState(**self._gate.state())
        return replace(state, holds=(*state.holds, _CONNECTED)) if self._connected else state

    def _start(self) -> None:
        try:
            debugpy = _listen()
        except BaseException as error:
            with self._lock:
                self._error, self._starts = sentence(error), False
            return
        self._port = debugpy.port
        self._watch(debugpy.module)

    def _watch(self, debugpy: Any) -> None:
        """Note when an IDE stops a thread, and when it continues."""
        while True:
            self._connected = debugpy.is_client_connected()
            self._note(_stopped() if self._connected else None)
            time.sleep(_TICK_S if self._connected else _IDLE_S)

    def _note(self, stopped: Held | None) -> None:
        if stopped == self._stopped:
            return
        if (stopped is None) != (self._stopped is None):
            self._gate.runs_clock(held=stopped is not None)
        self._box.end(self._record)
        self._record = -1 if stopped is None else self._box.begin(stopped)
        self._stopped = stopped


class _Listening:
    def __init__(self, module: Any, port: int) -> None:
        self.module, self.port = module, port


def _listen() -> _Listening:
    """Start debugpy's adapter, which serves the IDE; it ends with this process."""
    before = os.environ.get(_VALIDATION)
    os.environ[_VALIDATION] = "1"
    try:
        import debugpy  # noqa: T100 (a person asked for it)

        leave_own_threads_alone()
        debugpy.configure(subProcess=False)  # workers of a loader are no ranks, and would wait for an IDE of their own
        return _Listening(debugpy, debugpy.listen((_LOOPBACK, 0))[1])  # noqa: T100
    finally:
        if before is None:
            os.environ.pop(_VALIDATION, None)


def _stopped() -> Held | None:
    """Where the debugger has stopped a thread, the main thread first; None: nowhere."""
    frames = sys._current_frames()
    main = threading.main_thread().ident
    for ident, frame in sorted(frames.items(), key=lambda one: one[0] != main):
        if (at := _stopped_at(frame)) is not None:
            named = threading._active.get(ident)  # type: ignore[attr-defined]
            thread = "" if ident == main else str(getattr(named, "name", "?"))[:80]
            site = Site(at.f_code.co_filename, at.f_lineno, at.f_code.co_name)
            return Held(site=site, why="an IDE has stopped it", thread=thread, native_id=ident >> 6 & 0xFFFFFFFF)
    return None


def _stopped_at(frame: FrameType | None) -> FrameType | None:
    """The frame that the debugger has stopped, outside of the debugger; None: it has not."""
    waits = False
    for _ in range(_DEEP):
        if frame is None:
            return None
        own = "pydevd" in os.path.basename(frame.f_code.co_filename) or "_pydev" in frame.f_code.co_filename
        waits = waits or (own and frame.f_code.co_name == _WAITS)
        if waits and not own:
            return frame
        frame = frame.f_back
    return None
