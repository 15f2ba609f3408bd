"""How this process starts others, and knows when they end."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from ddpnb.recording.files import private

T = TypeVar("T")

# The entry of our own processes. By its path, so that the working directory is not on the import path: a file of the user must not shadow one of our
# modules. ``-P`` would do that too, but scripts would see it in sys.flags, and multiprocessing would pass it on to the
# interpreters that they start.
CHILD = [sys.executable, os.path.join(os.path.dirname(__file__), "engines", "child.py")]
TORCH, TRAINING, SCRIPT = "torch", "training", "script"  # what is imported before anything is forked


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: str,
    *,
    descriptors: Sequence[int] = (),
    directory: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own.

    Args:
        command: program and arguments.
        environment: all of it.
        log: the file to which its output is added.
        descriptors: those that it inherits.
        directory: in which it runs; None: in that of this process.

    Raises:
        OSError: the system refuses.
    """
    with open(log, "ab", opener=private) as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env=environment,
            pass_fds=descriptors,
            start_new_session=True,
        )


class Child:
    """A process that was started or is forked, with as much of ``subprocess.Popen`` as its owner needs.

    Attributes:
        begun: its process ID; an exception if it could not be forked. Cancelled: it is killed as soon as it is there.
        ended: its exit status.
        is_lost: the process that has forked it died, and with it this one.
    """

    def __init__(self) -> None:
        self.begun: Future[int] = Future()
        self.ended: Future[int] = Future()
        self.is_lost = False

    @property
    def pid(self) -> int:
        """Its process ID; 0 before it is known."""
        begun = self.begun
        return begun.result() if begun.done() and not begun.cancelled() and begun.exception() is None else 0

    def poll(self) -> int | None:
        return self.ended.result() if self.ended.done() else None


def watched(process: subprocess.Popen[bytes]) -> Child:
    """The same for a process whose end is to be known at once: a thread waits for it.

    Raises:
        RuntimeError: the system refuses a thread; the process is killed.
    """
    child = Child()
    child.begun.set_result(process.pid)
    name = f"ddpnb engine {process.pid}"
    try:
        threading.Thread(target=lambda: child.ended.set_result(process.wait()), name=name, daemon=True).start()
    except BaseException:
        from ddpnb.ranks import descendants  # it takes a while to import

        descendants.end_child(process)
        raise
    return child


class StartingThread:
    """A thread that starts processes: Linux tells a child about the death of the *thread* that started it.

    Args:
        name: of the thread, which begins when something is submitted.
    """

    def __init__(self, name: str) -> None:
        self.closed = False
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        self._lock = threading.Lock()

    def submit(self, work: Callable[..., T], *args: Any) -> Future[T]:
        """Call ``work`` on the thread, after what was submitted before.

        Raises:
            RuntimeError: the system refuses a thread, or this is closed.
        """
        with self._lock:
            if self.closed:
                raise RuntimeError("nothing is started any more")
            if self._thread.ident is None:
                self._thread.start()
        future: Future[T] = Future()
        self._work.put((future, lambda: work(*args)))
        return future

    def _follow(self) -> None:
        while (given := self._work.get()) is not None:
            future, work = given
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
            del given, future, work  # what they hold is freed now

    def close(self, seconds: float = 5.0) -> None:
        """End the thread, after what was submitted; wait for that at most so many seconds."""
        with self._lock:
            self.closed = True
        self._work.put(None)
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(seconds)
