"""The launcher's side of the process that forks engines (``fork_server``)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import psutil
from ipyparallel.cluster.launcher import LocalEngineLauncher
from traitlets import Any as Trait

from ddpnb.errors import LaunchError
from ddpnb.processes import descendants
from ddpnb.processes.engines.starter import Begun
from ddpnb.processes.exit_reasons import in_words
from ddpnb.processes.process_samples import GONE, kernel_status

_TAIL_BYTES = 2000
_TICK_S = 0.005
_END_S = 20.0  # for a process to end after SIGKILL


class NoForks(LaunchError):
    """The process that forks engines says why it must not."""


class RankLauncher(LocalEngineLauncher):
    """Starts the engine of one rank: in a new interpreter, or forked by ``forks``; or follows the one that was ``begun``."""

    begun: Any = Trait(None, allow_none=True)
    forks: Any = Trait(None, allow_none=True)
    _ended: asyncio.Event | None = None

    def start(self, n: int = 1) -> Any:  # noqa: ARG002 (a launcher of one)
        if self.forks is not None:
            return self._fork(self.forks)
        return super().start() if self.begun is None else self._follow(self.begun)

    async def _follow(self, process: subprocess.Popen[bytes]) -> None:
        self._ended = asyncio.Event()
        self.has_begun(process.pid)
        loop = asyncio.get_running_loop()

        def wait() -> None:
            status = process.wait()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                loop.call_soon_threadsafe(self.has_ended, status)

        threading.Thread(target=wait, name=f"ddpnb engine {process.pid}", daemon=True).start()

    async def _fork(self, forks: Forks) -> None:
        self._ended = asyncio.Event()
        order = {
            "arguments": self.args[2:],
            "environment": {**os.environ, **self.get_env()},
            "directory": os.getcwd(),
            "log": self.output_file,
        }
        await forks.fork(order, self)

    def has_begun(self, pid: int) -> None:
        """It has been started."""
        self.pid = pid
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, which is known in a moment
            self.process = psutil.Process(pid)
        self.notify_start(pid)

    def has_ended(self, status: int | None) -> None:
        """It has ended with this exit status (None: not known), after ``has_begun``."""
        assert self._ended is not None
        self._ended.set()
        self.notify_stop({"exit_code": status, "pid": self.pid, "identifier": self.identifier})

    async def join(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 (ipyparallel's own)
        if self._ended is None:
            await super().join(timeout)
        else:
            await asyncio.wait_for(self._ended.wait(), timeout)


class Forks:
    """The process that forks engines. All methods are called on the loop's thread, which starts processes.

    Args:
        begun: that process, and the socket that leads to it.
        log: with its output.
        loop: of the thread that starts processes.
    """

    def __init__(self, begun: Begun, log: str, loop: asyncio.AbstractEventLoop) -> None:
        assert begun.socket is not None
        self._process, self._socket = begun.process, begun.socket
        self._log, self._loop = log, loop
        self._asked: deque[tuple[asyncio.Future[None], RankLauncher]] = deque()
        self._engines: dict[int, RankLauncher] = {}
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())  # nobody may wait for it
        self._is_lost = False
        try:
            threading.Thread(target=self._read, name="ddpnb forks", daemon=True).start()
        except BaseException:
            begun.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    async def ready(self) -> None:
        """Wait until engines can be forked.

        Raises:
            NoForks: they must not be.
            LaunchError: the process has ended before; with how, and the end of its log.
        """
        await asyncio.shield(self._ready)

    async def fork(self, order: Mapping[str, Any], launcher: RankLauncher) -> None:
        """Fork an engine.

        Args:
            order: see ``fork_server.serve``.
            launcher: its ``has_begun`` is called, and later its ``has_ended``.

        Raises:
            OSError: the system refuses a process.
            LaunchError: this process has ended, or must not fork.
        """
        await self.ready()
        if self._is_lost:
            raise self._over()
        forked: asyncio.Future[None] = self._loop.create_future()
        self._asked.append((forked, launcher))
        with contextlib.suppress(OSError):  # it has ended: that is known in a moment
            self._socket.sendall(json.dumps(order).encode() + b"\n")
        await forked

    def stop(self) -> None:
        """Kill it, with the engines that are left."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # the thread that reads closes it
        descendants.end_child(self._process)

    # -- what it says

    def _read(self) -> None:
        """Hand what it says to the loop, until it ends; on a thread of its own."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for anything any more
            with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
                for line in lines:
                    self._loop.call_soon_threadsafe(self._note, json.loads(line))
            self._socket.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)  # an exception closes the socket before it is in the log
            # It has ended: the kernel kills the engines, and their number is free as soon as they are gone.
            until = time.monotonic() + _END_S
            while any(kernel_status(pid) != GONE for pid in list(self._engines)) and time.monotonic() < until:
                time.sleep(_TICK_S)
            self._loop.call_soon_threadsafe(self._lost)

    def _note(self, message: Mapping[str, Any]) -> None:
        if "ready" in message:
            if message["unfit"]:
                self._ready.set_exception(NoForks(f"ranks cannot be forked: {message['unfit']}."))
            else:
                self._ready.set_result(None)
        elif "ended" in message:
            self._engines.pop(message["pid"]).has_ended(message["ended"])
        else:
            forked, launcher = self._asked.popleft()
            error = message.get("error")
            if error is None:
                self._engines[message["pid"]] = launcher
                launcher.has_begun(message["pid"])
            if forked.cancelled():  # nobody waits for it any more
                descendants.end([launcher.pid], seconds=descendants.SOON_S)
            elif error is None:
                forked.set_result(None)
            else:
                forked.set_exception(OSError(error, os.strerror(error)))

    def _lost(self) -> None:
        self._is_lost = True
        waiting = [self._ready, *(forked for forked, _ in self._asked)]
        self._asked.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(self._over())
        while self._engines:
            self._engines.popitem()[1].has_ended(None)

    def _over(self) -> LaunchError:
        """How this process ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        status = self._process.returncode
        last: list[str] = []
        with contextlib.suppress(OSError), open(self._log, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log) - _TAIL_BYTES))
            last = log.read().decode(errors="replace").splitlines()[-12:]
        how = "ended" if status is None else in_words(status)
        return LaunchError(
            f"the process that forks the engines {how}.", "Its last lines:\n    " + "\n    ".join(last) if last else ""
        )


def refused() -> str:
    """Why nothing can be forked on this machine; empty if it can."""
    return "" if sys.platform == "linux" else "ranks can be forked on Linux only"
