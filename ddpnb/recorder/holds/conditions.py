"""Conditions of holds: the user's expressions, evaluated in the thread that may stop. One that never ends is ended."""

from __future__ import annotations

import ctypes
import dis
import signal
import threading
from _thread import get_ident
from time import monotonic
from types import CodeType, FrameType
from typing import Any

from ddpnb.recorder.stacks.evaluation import endless, names_in
from ddpnb.recorder.stacks.own_threads import own_thread
from ddpnb.recorder.stacks.user_frames import frames_of
from ddpnb.recording.protocol import RELEASE_SIGNAL

LIMIT_S = 2.0  # that an expression may take
_LOOKS_S = 0.25
_STORES = {op for name, op in dis.opmap.items() if name.startswith("STORE_")}


class _TooLong(BaseException):
    """Raised in the thread of an expression; no ``except Exception`` of what it calls catches it."""


class Expression:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.code = compile(text, "<condition>", "eval")
        # A function in it does not see the variables of the frame, and what it assigns would be the user's: these get a copy.
        nested = any(isinstance(one, CodeType) for one in self.code.co_consts)
        self.copies = nested or any(op in _STORES for op in self.code.co_code[::2])


class Conditions:
    """Evaluates expressions in frames of the calling thread."""

    def __init__(self) -> None:
        self._until: dict[int, tuple[float, str]] = {}  # by thread: until when its expression may take
        self._ending = threading.Lock()
        self._over: threading.Event | None = None  # while nobody watches

    def watch(self, wanted: bool) -> None:
        """From here on expressions may be evaluated, or none will be. Called from any thread."""
        over = self._over
        if wanted and over is None:
            self._over = over = threading.Event()
            own_thread(self._watch, "ddpnb conditions", (over,)).start()
        elif not wanted and over is not None:
            self._over = None
            over.set()

    def value(self, expression: Expression, frame: FrameType) -> Any:
        """The value of an expression in a frame.

        Raises:
            TimeoutError: it took longer than ``LIMIT_S``.
            Exception: what it raises.
        """
        ident = get_ident()
        try:
            try:
                self._until[ident] = monotonic() + LIMIT_S, expression.text
                if expression.copies:
                    return eval(expression.code, names_in(frame))  # noqa: S307 (the user's own)
                return eval(expression.code, frame.f_globals, frame.f_locals)  # noqa: S307
            finally:
                if self._until.pop(ident, None) is None:
                    self._take_back(ident)
        except _TooLong:
            raise TimeoutError(f"no value within {LIMIT_S:g} s") from None

    def _take_back(self, ident: int) -> None:
        """The expression ended as it was about to be ended: nothing may be raised behind it."""
        with self._ending:
            _raise_in(ident, None)
            endless.pop(ident, None)

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(_LOOKS_S):
            now = monotonic()
            for ident, (until, _) in list(self._until.items()):
                if until < now:
                    self._end(ident, now)

    def _end(self, ident: int, now: float) -> None:
        # Who takes the entry out decides: this thread raises nothing where the expression was faster.
        with self._ending:
            until, text = self._until.pop(ident, (now, ""))
            evaluates = any(frame.f_code is _VALUE for frame in frames_of(ident))
            if until < now and evaluates:
                endless[ident] = text
                _raise_in(ident, _TooLong)
                _wake(ident)


_VALUE = Conditions.value.__code__


def _raise_in(ident: int, error: type[BaseException] | None) -> None:
    kind = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), kind)


def _wake(ident: int) -> None:
    """End the call of C, as ``sleep()``, in which an expression waits: a signal does, whose handler then raises what is to be raised.

    Only the main thread has handlers. Others see the exception when their call returns.
    """
    if ident == threading.main_thread().ident and callable(signal.getsignal(RELEASE_SIGNAL)):
        signal.pthread_kill(ident, RELEASE_SIGNAL)
