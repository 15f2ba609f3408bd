"""A process that forks itself as its launcher orders.

The launcher writes orders, and reads answers, as lines of JSON on a socket. Each order gets an answer (``pid``, or
``error``), in their order; ``pid`` and ``ended`` together say how a fork ended (negative: by a signal).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any


class Forking:
    """Serves the orders of the launcher.

    Args:
        descriptor: of the socket.
        become: called first in each fork, with its order and the ID of its parent; it begins a session of its own.
    """

    def __init__(self, descriptor: int, become: Callable[[Mapping[str, Any], int], None]) -> None:
        self._become = become
        self._socket = socket.socket(fileno=descriptor)
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        self._wake = wake
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._received = b""
        self._forks: set[int] = set()

    def serve(
        self, unfit: str, prepare: Callable[[Mapping[str, Any]], None] = lambda _: None, idle_s: float | None = None
    ) -> dict[str, Any]:
        """Serve until the launcher closes the socket. Returns only in a fork, with its order.

        Args:
            unfit: why this process must not fork; empty if it may.
            prepare: called with each order before the fork.
            idle_s: end after so many seconds without forks and orders.
        """
        self._send({"ready": True, "unfit": unfit})
        if unfit:
            os._exit(0)
        while True:
            ready, _, _ = select.select([self._socket, self._woken], [], [], idle_s)
            if not ready and not self._forks:
                os._exit(0)
            if self._woken in ready:
                self._report_ends()
            if self._socket not in ready:
                continue
            received = self._socket.recv(1 << 16)
            if not received:
                os._exit(0)  # the forks die with this process
            *lines, self._received = (self._received + received).split(b"\n")
            for line in lines:
                order = json.loads(line)
                prepare(order)
                if self._fork(order):
                    return order

    def _fork(self, order: Mapping[str, Any]) -> bool:
        """Fork; whether this is the fork."""
        parent = os.getpid()
        begun, begin = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(begun)
            os.close(begin)
            self._send({"error": error.errno})
            return False
        if not pid:
            os.close(begun)
            self._leave()
            self._become(order, parent)
            os.close(begin)
            return True
        os.close(begin)
        os.read(begun, 1)  # the end of the file: it has a session of its own, and can be killed with all that it starts
        os.close(begun)
        self._forks.add(pid)
        self._send({"pid": pid})
        return False

    def _leave(self) -> None:
        """In a fork: nothing is left of the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._handler if self._handler is not None else signal.SIG_DFL)
        self._socket.close()
        os.close(self._woken)
        os.close(self._wake)

    def _report_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 1 << 10):
                pass
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._forks.discard(ended[0])
                self._send({"pid": ended[0], "ended": os.waitstatus_to_exitcode(ended[1])})

    def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # then the next read ends this process
            self._socket.sendall(json.dumps(message).encode() + b"\n")
