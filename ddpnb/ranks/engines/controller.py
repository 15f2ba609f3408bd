"""The controller of ipyparallel as one process, which registers an engine as soon as it answers.

ipyparallel registers it at the second beat after it has come up: all ranks would be ready, and the launch would wait. Here
the first answer counts, and beats are frequent while an engine is waited for. Otherwise nobody needs them: they are rare.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ipyparallel.controller import app, heartmonitor

_OFTEN_MS = 20
_OFTEN_S = 60.0  # for an engine that has come and does not answer
_reserved: list[socket.socket] = []


class HeartMonitorThread(threading.Thread):
    """What the controller takes for ``multiprocessing.Process``: its heart monitor is a thread of it.

    As a process of its own it can die alone, and from then on no engine could register any more.
    """

    def __init__(self, target: Callable[..., Any], kwargs: Mapping[str, Any], daemon: bool) -> None:
        super().__init__(target=target, kwargs=kwargs, daemon=daemon, name="heart monitor")

    def terminate(self) -> None:
        """It ends with the controller."""


class Hub(app.Hub):
    """Says whether an engine is waited for."""

    waits_until: ClassVar[float] = 0.0

    def register_engine(self, reg: Any, msg: Any) -> None:
        super().register_engine(reg, msg)
        Hub.waits_until = time.monotonic() + _OFTEN_S
        HeartMonitor.hurry()

    def finish_registration(self, heart: bytes) -> None:
        super().finish_registration(heart)
        if not self.incoming_registrations:
            Hub.waits_until = 0.0


class HeartMonitor(heartmonitor.HeartMonitor):
    """Reports a new engine when it answers for the first time."""

    _running: ClassVar[HeartMonitor | None] = None

    @classmethod
    def hurry(cls) -> None:
        """Beat often from now on; may be called on any thread."""
        if cls._running is not None:
            cls._running.caller.io_loop.add_callback(cls._running._begin_often)

    def start(self) -> None:
        super().start()
        HeartMonitor._running = self

    def _begin_often(self) -> None:
        self.caller.stop()
        self.caller.callback_time = _OFTEN_MS
        self.caller.start()

    def handle_pong(self, msg: Any) -> None:
        super().handle_pong(msg)
        new = self.responses - self.hearts
        if new:
            self.handle_new_hearts(new)

    def beat(self) -> None:
        super().beat()
        self.caller.callback_time = _OFTEN_MS if time.monotonic() < Hub.waits_until else self.period


def reserve_ports(count: int) -> list[int]:
    """Free ports that no other process is given from now on.

    Each keeps a socket that is bound and does not listen. The kernel gives its port to nobody who asks for any free one,
    and yet lets ZeroMQ listen at it, because both set ``SO_REUSEADDR``.

    >>> len(set(reserve_ports(3)))
    3
    """
    ports = []
    for _ in range(count):
        kept = socket.socket()
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("", 0))
        _reserved.append(kept)
        ports.append(kept.getsockname()[1])
    return ports


def main() -> None:
    """Run the controller until it is ended.

    ipyparallel looks for free ports first and listens at them later, partly in threads whose failure it does not notice.
    """
    app.Process, app.Hub, heartmonitor.HeartMonitor = HeartMonitorThread, Hub, HeartMonitor
    app.util.select_random_ports = reserve_ports
    app.main()
