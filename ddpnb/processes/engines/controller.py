"""The controller of ipyparallel as one process, which registers an engine as soon as it answers.

ipyparallel registers it at the second beat after it has come up, and a world beats ten times a second: all ranks would be
ready, and the launch would wait for a fifth of a second. Here the first answer counts, and while an engine is waited for
beats are more frequent.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ipyparallel.controller import app, heartmonitor
from zmq import ZMQError

_TRIED, _MOST_TRIES = "DDPNB_CONTROLLER_TRIED", 3  # an environment variable
_OFTEN_MS = 20
_OFTEN_S = 60.0  # for an engine that has come and does not answer


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

    def finish_registration(self, heart: bytes) -> None:
        super().finish_registration(heart)
        if not self.incoming_registrations:
            Hub.waits_until = 0.0


class HeartMonitor(heartmonitor.HeartMonitor):
    """Reports a new engine when it answers for the first time."""

    def handle_pong(self, msg: Any) -> None:
        super().handle_pong(msg)
        new = self.responses - self.hearts
        if new:
            self.handle_new_hearts(new)

    def beat(self) -> None:
        super().beat()
        self.caller.callback_time = _OFTEN_MS if time.monotonic() < Hub.waits_until else self.period


def main() -> None:
    """Run the controller until it is ended.

    ipyparallel looks for free ports first and takes them later. Where another process has taken one meanwhile, this one
    starts again; nobody has been given its ports by then.
    """
    app.Process, app.Hub, heartmonitor.HeartMonitor = HeartMonitorThread, Hub, HeartMonitor
    try:
        app.main()
    except ZMQError as error:
        tried = os.environ.get(_TRIED, "")
        if error.errno != errno.EADDRINUSE or len(tried) >= _MOST_TRIES:
            raise
        os.environ[_TRIED] = tried + "x"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
