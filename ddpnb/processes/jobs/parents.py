"""Parents of forked ranks for runs that follow one another: torch is imported once, and not for each run.

One process imports torch and nothing of the user. For each run it forks the process that forks the ranks, which works as one
that was started by itself (``inject.fork_ranks``). Runs share it only where the import could not differ: the same
interpreter and the same environment, but for what ddpnb itself sets for each run.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ddpnb.files import private
from ddpnb.inject import fork_ranks
from ddpnb.processes import descendants
from ddpnb.recorder import protocol

_MOST = 2  # that live at the same time: each takes as much memory as a process with torch
_IDLE_S = 60.0  # after which one that is not used ends
_START_S = 60.0
#: that differ from run to run, and that no import of torch reads
_OF_A_RUN = frozenset(
    {
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
        "MASTER_ADDR", "MASTER_PORT", "DDP_BACKEND", protocol.JOB, protocol.FOLDER, protocol.DEVICE, protocol.BACKEND,
        protocol.FENCE, protocol.PARENT,
    }
)  # fmt: skip


class Parent:
    """The process that forks the ranks of one run: as much of ``subprocess.Popen`` as that needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.is_lost = False  # the process that has forked it died, and with it this one and its ranks

    def poll(self) -> int | None:
        return self.status


class NoParent(Exception):
    """None can be forked; what it says is why."""


class Parents:
    """Forks parents of ranks. ``close()`` ends all of them; so does the end of the last reference."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[object, _Source] = {}  # the least recently used first
        # Linux tells a child about the death of the *thread* that started it: this one lives as long as they.
        self._starter = ThreadPoolExecutor(1, "ddpnb parents")
        self._end = weakref.finalize(self, _close, self._sources, self._starter)

    def start(self, path: str, environment: Mapping[str, str], directory: str, log: str) -> Parent:
        """Fork a parent.

        Args:
            path: of its order: see ``fork_ranks.main``.
            environment: its own.
            directory: in which it and its ranks run.
            log: its output.

        Raises:
            NoParent: none can be forked: start it by itself.
        """
        given = {name: value for name, value in environment.items() if name not in _OF_A_RUN}
        relative = any(not os.path.isabs(entry) for entry in given.get("PYTHONPATH", "/").split(os.pathsep))
        place = directory if relative else os.sep
        key = (place, frozenset(given.items()))
        order = {"path": path, "environment": dict(environment), "directory": directory, "log": log}
        with self._lock:
            source = self._sources.pop(key, None)
            for _ in range(2):
                if source is None:
                    self._make_room()
                    source = self._source(given, place)
                self._sources[key] = source
                parent = source.fork(order)
                if parent is not None:
                    return parent
                self._sources.pop(key).close()  # it has ended meanwhile, or died
                source = None
        raise NoParent("the process that forks them ended")

    def _source(self, environment: Mapping[str, str], directory: str) -> _Source:
        starting = self._starter.submit(_Source, environment, directory)
        try:
            return starting.result()
        except BaseException:  # an interrupt: it must not stay when it has started
            starting.add_done_callback(lambda started: started.exception() or started.result().close())
            raise

    def _make_room(self) -> None:
        for key, source in list(self._sources.items()):
            if len(self._sources) >= _MOST and source.is_idle:
                self._sources.pop(key).close()

    def close(self) -> None:
        """End all that was started."""
        self._end()


def _close(sources: dict[object, _Source], starter: ThreadPoolExecutor) -> None:
    while sources:
        sources.popitem()[1].close()
    starter.shutdown(wait=False)


class _Source:
    """The process that imports torch and forks parents.

    Raises:
        NoParent: it must not fork, or has died.
    """

    def __init__(self, environment: Mapping[str, str], directory: str) -> None:
        self._parents: dict[int, Parent] = {}
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="ddpnb-parents-", ignore_cleanup_errors=True)
        given = {
            protocol.JOB: self._folder.name,
            protocol.FOLDER: protocol.PLACE_OF_FOLDER,
            protocol.PARENT: str(os.getpid()),
        }
        self._socket, theirs = socket.socketpair()
        with theirs, open(os.path.join(self._folder.name, "log"), "ab", opener=private) as log:
            self._process = subprocess.Popen(
                [sys.executable, fork_ranks.__file__, "serve", str(theirs.fileno()), str(_IDLE_S)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={**environment, **given},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        threading.Thread(target=self._read, name="ddpnb parents", daemon=True).start()
        ready = self._answer()
        if ready is None or ready["unfit"]:
            self.close()
            raise NoParent(ready["unfit"] if ready is not None else "the process that forks them died")

    @property
    def is_idle(self) -> bool:
        return not self._parents

    def fork(self, order: Mapping[str, Any]) -> Parent | None:
        """Fork a parent; None: this process has ended, or cannot fork."""
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(order).encode() + b"\n")
            answer = self._answer()
            return answer.get("parent") if answer is not None else None
        return None

    def _answer(self) -> dict[str, Any] | None:
        try:
            return self._answers.get(timeout=_START_S)
        except queue.Empty:
            return None

    def _read(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                message: dict[str, Any] = json.loads(line)
                if "ended" in message:
                    self._parents.pop(message["pid"]).status = message["ended"]
                    continue
                if "pid" in message:  # before its end can be read
                    message["parent"] = self._parents[message["pid"]] = Parent(message["pid"])
                self._answers.put(message)
        for parent in list(self._parents.values()):
            parent.is_lost, parent.status = True, -signal.SIGKILL
        self._parents.clear()
        self._answers.put(None)

    def close(self) -> None:
        """End it, with what it has forked."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        descendants.end_child(self._process)
        self._socket.close()
        self._folder.cleanup()
