"""The thread that starts the processes of a world, and the first of them: before the launcher has imported ipyparallel.

Linux tells a child about the death of the *thread* that started it, so this one lives as long as the world.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ddpnb.errors import LaunchError, WorldError
from ddpnb.files import make_folder, private
from ddpnb.recorder.protocol import PARENT, PLACE_OF_RANK, sees_processes

# By its path, so that the working directory is not on the import path: a file of the user must not shadow one of our
# modules. ``-P`` would do that too, but scripts would see it in sys.flags, and multiprocessing would pass it on to the
# interpreters that they start.
CHILD = [sys.executable, os.path.join(os.path.dirname(__file__), "child.py")]
NEVER_S = 86_400
ENGINE_ARGS = [
    "--IPEngine.enable_nanny=False",
    # The launcher's own time-out is the only one: it ends engines that did not start by then.
    f"--IPEngine.timeout={NEVER_S}",
    f"--IPEngine.wait_for_url_file={NEVER_S}",
    "--IPEngine.max_heartbeat_misses=0",  # a rank does not end because its controller is slow or has died
    "--IPEngine.startup_command=import ddpnb.recorder.rank as _r; _r.attach(); del _r",
]
CLUSTER_ID = "world"


@dataclass(frozen=True, slots=True)
class Begun:
    """A process that has been started; ``socket`` leads to it where it forks engines."""

    process: subprocess.Popen[bytes]
    socket: socket.socket | None = None

    def end(self) -> None:
        """Kill it, with all that it has started."""
        from ddpnb.processes import descendants  # it takes a while to import

        descendants.end_child(self.process)
        if self.socket is not None:
            self.socket.close()


class Starter:
    """Starts processes on a thread of its own, which also runs what asyncio needs to follow them.

    Args:
        folder: of the world, for the output of the processes and the files of ipyparallel.

    Raises:
        LaunchError: ipyparallel would not see its processes.
        RuntimeError: no thread can be started.
    """

    def __init__(self, folder: str) -> None:
        if not sees_processes():
            raise LaunchError(
                "there is no /proc here, without which ipyparallel starts no processes.",
                "Mount it (mount -t proc proc /proc), or use ddpnb run, which does not need it.",
            )
        self._folder = folder
        self._begun: dict[int, Begun] = {}
        self._forks: Begun | None = None
        self._trouble: Exception | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="ddpnb cluster", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self.loop.close()
            raise

    @property
    def closed(self) -> bool:
        return self.loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run ``work`` on the thread that starts processes.

        Raises:
            WorldError: the world is closed.
        """
        if self.closed:
            work.close()
            raise WorldError("this world is closed.", "Launch a new one: ddpnb.launch(n).")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    # -- the first processes

    def begin(self, environments: Mapping[int, Mapping[str, str]]) -> None:
        """Start the engines of these ranks. A failure is raised when they are asked for."""
        self.loop.call_soon_threadsafe(self._begin, environments)

    def _begin(self, environments: Mapping[int, Mapping[str, str]]) -> None:
        try:
            for rank, environment in environments.items():
                self._begun[rank] = Begun(
                    start(engine_command(self._folder), self.environment(environment), self.log(rank))
                )
        except Exception as error:
            self._trouble = error

    def begin_forks(self, imports: str, environment: Mapping[str, str]) -> None:
        """Start the process from which engines are forked. A failure is raised when it is asked for."""
        self.loop.call_soon_threadsafe(self._begin_forks, imports, environment)

    def _begin_forks(self, imports: str, environment: Mapping[str, str]) -> None:
        try:
            self._forks = self.start_forks(imports, environment)
        except Exception as error:
            self._trouble = error

    def taken(self, rank: int) -> Begun | None:
        """The process that was started for this rank; the second time there is none. On the loop's thread."""
        self._raise_trouble()
        return self._begun.pop(rank, None)

    def taken_forks(self) -> Begun | None:
        """The same, of the process from which engines are forked."""
        self._raise_trouble()
        begun, self._forks = self._forks, None
        return begun

    def _raise_trouble(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    # -- how they are started

    @property
    def profile(self) -> str:
        """The profile of ipyparallel."""
        return os.path.join(self._folder, "cluster")

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment of an engine, by the one of its rank."""
        return {"IPP_CLUSTER_ID": CLUSTER_ID, "IPP_PROFILE_DIR": self.profile, **environment, PARENT: str(os.getpid())}

    def log(self, rank: int) -> str:
        """The file for the output of an engine.

        Raises:
            OSError: its folder cannot be made.
        """
        folder = os.path.join(self.profile, "log")
        make_folder(folder)
        return os.path.join(folder, f"rank{rank}.log")

    def start_forks(self, imports: str, environment: Mapping[str, str]) -> Begun:
        """Start a process from which engines are forked.

        Args:
            imports: see ``fork_server.serve``.
            environment: of the ranks: it has torch imported with what is the same for all of them.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                command = [*CHILD, "forks", self._folder, imports, str(theirs.fileno())]
                variables = {**environment, PARENT: str(os.getpid()), "RANK": PLACE_OF_RANK}
                return Begun(start(command, variables, self.forks_log, [theirs.fileno()]), ours)
        except BaseException:
            ours.close()
            raise

    @property
    def forks_log(self) -> str:
        """The file for its output."""
        return os.path.join(self._folder, "forks.log")

    # -- the end

    def end_begun(self) -> None:
        """Kill the processes that nobody has taken. On the loop's thread."""
        forks = [self._forks] if self._forks is not None else []
        self._forks = None
        for begun in (*forks, *self._begun.values()):
            begun.end()
        self._begun.clear()

    def stop(self) -> None:
        """End the thread. Processes die with it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)
        if not self.loop.is_running():
            self.loop.close()

    def close(self) -> None:
        """Kill what nobody has taken, and end the thread."""
        if not self.closed:
            self.loop.call_soon_threadsafe(self.end_begun)
            self.stop()


def engine_command(folder: str) -> list[str]:
    """The command that runs an engine."""
    return [*CHILD, "engine", folder, *ENGINE_ARGS]


def start(
    command: Sequence[str], environment: Mapping[str, str], log: str, descriptors: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own.

    Raises:
        OSError: the system refuses.
    """
    with open(log, "ab", opener=private) as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            pass_fds=descriptors,
            start_new_session=True,
        )


def common(environments: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What is the same in all of these environments."""
    first, *others = environments
    return {name: value for name, value in first.items() if all(one.get(name) == value for one in others)}
