"""The launcher's side of a process that has torch imported and forks others (``fork_server``): engines, and ranks of scripts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from ddpnb.errors import LaunchError, UsageError
from ddpnb.ranks import interpreter
from ddpnb.ranks.exit_reasons import end_of, tail
from ddpnb.ranks.interpreter import SCRIPT, TORCH, TRAINING, Child, StartingThread
from ddpnb.ranks.locked_folder import LockedFolder
from ddpnb.recorder.process.shown_environment import ROOM
from ddpnb.recording import arguments, protocol

_TICK_S = 0.005
_END_S = 20.0  # for a process to end after SIGKILL
_MOST = 2  # fork servers that live at the same time: each takes as much memory as a process with torch
_IDLE_S = 60.0  # after which one that is not used ends
#: that differ from run to run, and that no import of torch reads
_OF_A_RUN = frozenset(
    {
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
        "MASTER_ADDR", "MASTER_PORT", "DDP_BACKEND", protocol.JOB, protocol.FOLDER, protocol.DEVICE, protocol.BACKEND,
        protocol.FENCE, protocol.PARENT,
    }
)  # fmt: skip


class NoForks(LaunchError):
    """The process that forks says why it must not."""

    def warn(self) -> None:
        print(f"ddpnb: warning: {self.what} Each starts in a new interpreter, which takes longer.", file=sys.stderr)


def imports_for(fork: object) -> str:
    """What is imported before ranks are forked; empty: they are not.

    Args:
        fork: as for ``launch()``; None: what the variable DDPNB_FORK says.

    Raises:
        UsageError: it is something else.
    """
    name = "fork" if fork is not None else protocol.FORK
    given = os.environ.get(protocol.FORK, "0") or "0" if fork is None else fork
    known = {"0": "", "1": TORCH, TRAINING: TRAINING}
    text = str(int(given)) if isinstance(given, bool) else given
    if not isinstance(text, str) or text not in known:
        raise UsageError(
            f"{name} must not be {arguments.short(given)}.",
            f'fork=True or DDPNB_FORK=1 forks ranks, fork="{TRAINING}" or DDPNB_FORK={TRAINING} with more imported.',
        )
    return known[text]


class ForkServer:
    """A process that forks others. It dies with the thread that makes this; they die with it.

    Args:
        imports: what it imports before: see ``fork_server.serve``.
        environment: all of its own; an order has that of each fork.
        folder: in which it comes up.
        log: the file for its output.
        directory: where the interpreter looks for relative entries of its import path; None: in that of this process.
        idle_s: it ends when it has not been used for so long; 0: never.

    Raises:
        OSError: the system refuses a process.
        RuntimeError: the system refuses a thread.
    """

    def __init__(
        self,
        imports: str,
        environment: Mapping[str, str],
        folder: str,
        log: str,
        *,
        directory: str | None = None,
        idle_s: float = 0.0,
    ) -> None:
        self._log, self._of = log, "ranks" if imports == SCRIPT else "engines"
        self._lock = threading.Lock()
        self._asked: deque[Child] = deque()
        self._forks: dict[int, Child] = {}
        self._unfit = ""
        self._over: LaunchError | None = None
        self.ready: Future[None] = Future()  # an exception: it must not fork, or has ended
        # Whatever is imported there must not take it for its rank.
        own = {name: value for name, value in environment.items() if name != "RANK"} | ROOM
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                command = [*interpreter.CHILD, "forks", folder, imports, str(theirs.fileno()), str(idle_s)]
                self.process = interpreter.start(command, own, log, descriptors=[theirs.fileno()], directory=directory)
        except BaseException:
            self._socket.close()
            raise
        try:
            threading.Thread(target=self._read, name="ddpnb forks", daemon=True).start()
        except BaseException:
            self.stop()
            self._socket.close()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self._over is None and self.process.poll() is None

    @property
    def is_idle(self) -> bool:
        """Whether nothing that it has forked lives."""
        return not self._forks and not self._asked

    def fork(self, order: Mapping[str, Any]) -> Child:
        """Fork a process; it is there later, once this one has imported what it needs.

        Args:
            order: see ``fork_server.serve``.
        """
        fork = Child()
        with self._lock:
            if self._over is None:
                self._asked.append(fork)
                with contextlib.suppress(OSError):  # it has ended: that is known in a moment
                    self._socket.sendall(json.dumps(order).encode() + b"\n")
                return fork
        self._fail(fork)
        return fork

    def stop(self) -> None:
        """Kill it, with all that it has forked."""
        from ddpnb.ranks import descendants  # it takes a while to import

        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # the thread that reads closes it
        descendants.end_child(self.process)

    # -- what it says

    def _read(self) -> None:
        """Note what it says, until it ends; on a thread of its own."""
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                self._note(json.loads(line))
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_S)  # an exception closes the socket before it is in the log
        if self._forks:
            self._await_forks()
        with self._lock:
            self._over = self._how_it_ended()
            asked, lost = list(self._asked), list(self._forks.values())
            self._asked.clear()
            self._forks.clear()
        if not self.ready.done():
            self.ready.set_exception(self._over)
        for fork in asked:
            self._fail(fork)
        for fork in lost:
            fork.is_lost = True
            fork.ended.set_result(-signal.SIGKILL)

    def _await_forks(self) -> None:
        """It has ended: the kernel kills what it has forked, and their number is free as soon as they are gone."""
        from ddpnb.ranks.process_samples import GONE, kernel_status

        until = time.monotonic() + _END_S
        while any(kernel_status(pid) != GONE for pid in self._forks) and time.monotonic() < until:
            time.sleep(_TICK_S)

    def _note(self, message: Mapping[str, Any]) -> None:
        if "ready" in message:
            self._unfit = message["unfit"]
            if not self._unfit:
                self.ready.set_result(None)
        elif "ended" in message:
            self._forks.pop(message["pid"]).ended.set_result(message["ended"])
        elif "error" in message:
            _failed(self._asked.popleft(), OSError(message["error"], os.strerror(message["error"])), 1)
        else:
            fork, pid = self._asked[0], message["pid"]
            self._forks[pid] = fork
            self._asked.popleft()
            if fork.begun.set_running_or_notify_cancel():
                fork.begun.set_result(pid)
            else:  # nobody waits for it any more
                from ddpnb.ranks import descendants

                descendants.end([pid], seconds=descendants.SOON_S)

    def _fail(self, fork: Child) -> None:
        assert self._over is not None
        status = self.process.returncode or 0
        fork.is_lost = not self._unfit and status <= 0  # else it could not import what the program needs
        _failed(fork, self._over, status or 1)

    def _how_it_ended(self) -> LaunchError:
        if self._unfit:
            return NoForks(f"ranks cannot be forked: {self._unfit}.")
        return LaunchError(
            f"the process that forks the {self._of} {end_of(self._log, self.process.returncode)}.", tail(self._log)
        )


def _failed(fork: Child, error: Exception, status: int) -> None:
    """It could not be forked."""
    if fork.begun.set_running_or_notify_cancel():
        fork.begun.set_exception(error)
    if not isinstance(error, NoForks):  # else it can be started otherwise
        fork.ended.set_result(status)


class ForkServers:
    """Those of scripts that run one after the other: torch is imported once, and not for each run.

    Runs share one only where the import could not differ: the same environment, but for what ddpnb itself sets for each
    run. ``close()`` ends all of them; so does the end of the last reference.

    Args:
        folder: for their output; None: a new one, which is removed in the end.
        most: that live at the same time, but for those whose forks live.

    Raises:
        OSError: there is no room for a folder.
    """

    def __init__(self, folder: str | None = None, *, most: int = _MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._servers: dict[object, ForkServer] = {}  # the least recently used first
        own = LockedFolder(tempfile.gettempdir()) if folder is None else None
        self._folder = own.path if own is not None else str(folder)
        self._starter = StartingThread("ddpnb fork servers")
        self._end = weakref.finalize(self, _close, self._servers, self._starter, own)

    def server(self, environment: Mapping[str, str], directory: str, imports: str = SCRIPT) -> ForkServer:
        """One for a run with this environment in this directory.

        Raises:
            OSError: the system refuses a process.
            RuntimeError: the system refuses a thread, or all are closed.
        """
        given = {name: value for name, value in environment.items() if name not in _OF_A_RUN}
        relative = any(not os.path.isabs(entry) for entry in given.get("PYTHONPATH", "/").split(os.pathsep))
        place = directory if relative else os.sep
        key = (imports, place, frozenset(given.items()))
        with self._lock:
            server = self._servers.pop(key, None)
            if server is not None and not server.running:
                server.stop()
                server = None
            if server is None:
                self._make_room()
                server = self._started(given, place, imports)
            self._servers[key] = server
            return server

    def _started(self, environment: Mapping[str, str], directory: str, imports: str) -> ForkServer:
        own = {**environment, protocol.JOB: self._folder, protocol.PARENT: str(os.getpid())}
        log = os.path.join(self._folder, "forks.log")
        make = partial(ForkServer, directory=directory, idle_s=_IDLE_S)
        starting = self._starter.submit(make, imports, own, self._folder, log)
        try:
            return starting.result()
        except BaseException:  # an interrupt: it must not stay when it has started
            starting.add_done_callback(lambda started: started.exception() or started.result().stop())
            raise

    def _make_room(self) -> None:
        for key, server in list(self._servers.items()):
            if len(self._servers) >= self._most and server.is_idle:
                self._servers.pop(key).stop()

    def close(self) -> None:
        """End all that was started."""
        self._end()


def _close(servers: dict[object, ForkServer], starter: StartingThread, folder: LockedFolder | None) -> None:
    while servers:
        servers.popitem()[1].stop()
    starter.close()
    if folder is not None:
        folder.remove()
