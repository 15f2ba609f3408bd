"""The end of a job that gets a signal: the signal belongs to the program, which has as long to end as under torchrun."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:  # ranks are started before what the diagnosis needs is imported
    from ddpnb.recording.findings import Diagnosis
    from ddpnb.world.command_run import CommandRun
    from ddpnb.world.plain_run import PlainRun

GRACE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"  # torchrun's own variable
_GRACE_S = 30.0
_TICK_S = 0.05
_QUIET_S = 1.0  # after which it is said that ranks are waited for


class StartedJob:
    """What was started, as a context manager: the end of it ends the job."""

    _end: ExitStack

    def close(self) -> None:
        """End the processes if they still run, and remove their files."""
        self._end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EndBySignal:
    """Passes signals on to a job, and waits for its end.

    Args:
        current: gives the job; None: there is none yet.
        say: prints a line.
    """

    def __init__(self, current: Callable[[], PlainRun | CommandRun | None], say: Callable[[str], None]) -> None:
        self._current, self._say = current, say
        self._at_once = self._closed = False
        # A handler may interrupt the thread that holds a lock which this needs: another thread passes them on.
        self._further: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=self._pass_on, name="ddpnb signals", daemon=True).start()

    def further(self, number: int) -> None:
        """Take a signal that does not end the job, or comes after the one that does. A second Ctrl-C ends it at once."""
        if number == signal.SIGINT:
            self._at_once = True
        else:
            self._further.put(number)

    def _pass_on(self) -> None:
        while number := self._further.get():
            while (job := self._current()) is None and not self._closed:  # its first ranks have been started already
                time.sleep(_TICK_S)
            if job is not None:
                job.forward(number)

    def begin(self, number: int, since_ns: int) -> Diagnosis:
        """Give the job this signal; the findings of the moment before."""
        from ddpnb.recording.findings import Diagnosis

        job = self._current()
        if job is None:
            return Diagnosis("interrupted")
        if job.run is not None:
            return job.run._monitor.interrupted(lambda: job.forward(number), since_ns)
        job.forward(number)
        return Diagnosis("interrupted")

    def wait(self) -> None:
        """Wait until the job has ended, its time is over, or Ctrl-C was pressed again."""
        job, began, said = self._current(), time.monotonic(), False
        while job is not None and job.lives and not self._at_once:
            waited = time.monotonic() - began
            if waited > job.grace_s:
                self._say(f"what has not ended after {job.grace_s:g} s is killed")
                break
            if waited > _QUIET_S and not said:
                said = True
                self._say(f"the signal was passed on; the job has {job.grace_s:g} s to end. Ctrl-C ends it at once")
            time.sleep(_TICK_S)

    def close(self) -> None:
        """Pass nothing on any more."""
        self._closed = True
        self._further.put(0)


def grace_s() -> float:
    """How long torchrun waits for ranks that got a signal."""
    try:
        return max(float(os.environ.get(GRACE, "") or _GRACE_S), 0.0)
    except ValueError:
        return _GRACE_S
