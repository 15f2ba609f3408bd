"""The controller and the engine processes of a world, and the thread that starts them.

The engines of a new world are started first (``early``), before the launcher has imported ipyparallel; then the controller,
which is ready before they have torch imported. So this imports little.
Nannies are disabled: ``Engines`` does their work (signals, prompt notice of a death), and four of them would cost
110 MB and half a second.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from ddpnb.errors import DdpnbError, LaunchError, WorldError
from ddpnb.ranks import interpreter
from ddpnb.ranks.environment import LOOPBACK
from ddpnb.ranks.exit_reasons import cannot_start, end_of, tail
from ddpnb.ranks.forks import ForkServer, NoForks
from ddpnb.ranks.interpreter import CHILD, Child, StartingThread, watched
from ddpnb.recording.files import make_folder
from ddpnb.recording.protocol import PARENT, sees_processes

if TYPE_CHECKING:
    from ddpnb.ranks.rank_processes import Connection

T = TypeVar("T")
START_S = 20.0  # for one process to start, or to end after SIGKILL
_STOP_S = 30.0  # for all processes of a world to end after SIGKILL
_NOTED_S = 1.0  # after which the exit status of a process that has ended is known
_TICK_S = 0.01
_NEVER_S = 86_400
_ID = "world"
ENGINE_ARGS = [
    "--IPEngine.enable_nanny=False",
    # The launcher's own time-out is the only one: it ends engines that did not start by then.
    f"--IPEngine.timeout={_NEVER_S}",
    f"--IPEngine.wait_for_url_file={_NEVER_S}",
    "--IPEngine.max_heartbeat_misses=0",  # a rank does not end because its controller is slow or has died
    "--IPEngine.startup_command=import ddpnb.recorder.rank as _r; _r.attach(); del _r",
]
_CONTROLLER_ARGS = [
    "--IPController.use_threads=True",
    "--IPController.db_class=NoDB",  # by default it keeps every task with its result
    f"--IPController.registration_timeout={_NEVER_S}",
    "--HeartMonitor.period=2000",  # see ``controller``
    "--HeartMonitor.max_heartmonitor_misses=1000000",  # a stopped rank must not be forgotten
]


class EngineCluster:
    """Starts and stops the processes of one world, on a thread of its own.

    Args:
        folder: of the world, for the output of the processes and the files of ipyparallel.
        address: of this host, at which the controller listens. What is not the loopback is encrypted (CURVE).

    Raises:
        LaunchError: ipyparallel would not see its processes.
        RuntimeError: no thread can be started.
    """

    def __init__(self, folder: str, address: str = LOOPBACK) -> None:
        if not sees_processes():
            raise LaunchError(
                "there is no /proc here, without which ipyparallel starts no processes.",
                "Mount it (mount -t proc proc /proc), or use ddpnb run, which does not need it.",
            )
        self._folder, self._address = folder, address
        self._profile = os.path.join(folder, "cluster")  # of ipyparallel
        self.controller: subprocess.Popen[bytes] | None = None
        self._forks: ForkServer | None = None
        self._imports, self._common = "", dict[str, str]()
        self._begun: dict[int, subprocess.Popen[bytes]] = {}  # early: nobody follows them yet
        self._beginning: Future[None] | None = None
        self._engines: dict[int, Child] = {}
        self._connecting: threading.Thread | None = None
        self._thread = StartingThread("ddpnb cluster")
        self._thread.submit(int)  # begin it

    @property
    def closed(self) -> bool:
        return self._thread.closed

    def submit(self, work: Callable[..., T], *args: Any) -> Future[T]:
        """Call ``work`` on the thread that starts processes.

        Raises:
            WorldError: the world is closed.
        """
        if self.closed:
            raise WorldError("this world is closed.", "Launch a new one: ddpnb.launch(n).")
        return self._thread.submit(work, *args)

    def _launch(self, timeout: float, work: Callable[..., Any], *args: Any) -> None:
        """Start a process.

        Raises:
            LaunchError: the system refuses, or it takes longer.
        """
        try:
            self.submit(work, *args).result(timeout)
        except TimeoutError:
            raise _late(timeout) from None
        except DdpnbError:
            raise
        except (OSError, RuntimeError) as error:  # RuntimeError: no more threads
            raise cannot_start(error) from None

    # -- the first processes

    def begin(self, environments: Mapping[int, Mapping[str, str]], imports: str = "") -> None:
        """Start the engines of these ranks, or the process from which they are forked.

        A failure is raised when they are asked for.

        Args:
            environments: by rank.
            imports: see ``start_forks``; empty: they are not forked.
        """
        if imports:
            self._imports, self._common = imports, common(environments.values())
            self._beginning = self.submit(self._new_forks)
        else:
            self._beginning = self.submit(self._begin, environments)

    def _begin(self, environments: Mapping[int, Mapping[str, str]]) -> None:
        for rank, environment in environments.items():
            self._begun[rank] = self._start("engine", ENGINE_ARGS, environment, self._log(f"rank{rank}"))

    def _raise_trouble(self) -> None:
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            beginning.result()

    # -- the controller

    def start_controller(self, timeout: float) -> None:
        """Start the controller; ``connect()`` waits for it."""
        self._launch(timeout, self._start_controller)

    def _start_controller(self) -> None:
        own = [f"--ip={self._address}", f"--IPController.enable_curve={self._address != LOOPBACK}"]
        self.controller = self._start("controller", [*_CONTROLLER_ARGS, *own], {}, self._log("controller"))

    def connect(self, client_class: Callable[..., T], deadline: float) -> Future[T]:
        """Make a client in a thread of its own: it blocks until the controller answers."""
        client: Future[T] = Future()

        def connect() -> None:
            try:
                made: Any = client_class(
                    self._connection("client"),
                    profile_dir=self._profile,
                    ipython_dir=self._profile,  # not that of a home that may be missing or read-only
                    cluster_id=_ID,
                    timeout=max(1, math.ceil(deadline - time.monotonic())),
                )
            except BaseException as error:
                client.set_exception(error)
                return
            client.set_result(made)
            if self.closed:  # too late: nobody waits for it any more
                made.close(linger=0)

        self._connecting = threading.Thread(target=connect, name="ddpnb client", daemon=True)
        self._connecting.start()
        return client

    def _connection(self, of: str) -> dict[str, Any]:
        """What a client or an engine needs to connect, as the controller writes it; the launch has its own limit."""
        path = os.path.join(self._profile, "security", f"ipcontroller-{_ID}-{of}.json")
        while True:
            with contextlib.suppress(FileNotFoundError, ValueError), open(path, encoding="utf-8") as file:
                return json.load(file)
            self.check_controller()
            time.sleep(_TICK_S)

    def engine_connection(self) -> dict[str, Any]:
        """What an engine on another host needs to connect, keys included; the controller is up."""
        return self._connection("engine")

    @property
    def connection(self) -> Connection:
        """The state of the controller, through which ranks are reached, according to the kernel."""
        from ddpnb.ranks.process_samples import GONE, STOPPED, kernel_status

        controller = self.controller
        status = kernel_status(controller.pid) if controller is not None and controller.poll() is None else GONE
        return "lost" if status == GONE else "stopped" if status in STOPPED else "open"

    def check_controller(self) -> None:
        """Raise an exception if the controller has died.

        Raises:
            LaunchError: with how it ended and the end of its log.
        """
        if self.connection != "lost":
            return
        status = None
        if self.controller is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.controller.wait(_NOTED_S)
        how = end_of(self.controller_log, status)
        raise LaunchError(f"the controller of this world has died: it {how}.", tail(self.controller_log))

    @property
    def controller_log(self) -> str:
        """The file with the output of the controller."""
        return self._log("controller")

    # -- engines

    def start_forks(self, imports: str, environment: Mapping[str, str], timeout: float) -> None:
        """Start a process from which engines are forked from now on; ``wait_for_forks()`` waits for it.

        Args:
            imports: see ``fork_server.serve``.
            environment: what is the same for all of them: it has torch imported with that.
            timeout: seconds.
        """
        self._imports, self._common = imports, dict(environment)
        self._launch(timeout, self._start_forks)

    def _start_forks(self) -> None:
        self._raise_trouble()
        if self._forks is None or not self._forks.running:
            self._new_forks()

    def _new_forks(self) -> None:
        if self._forks is not None:
            self._forks.stop()
        log = os.path.join(self._folder, "forks.log")
        self._forks = ForkServer(self._imports, self._whole(self._common), self._folder, log)

    def wait_for_forks(self, timeout: float) -> None:
        """Wait until engines can be forked.

        Raises:
            NoForks: they must not be: from now on they start in new interpreters.
            LaunchError: the process has died.
        """
        assert self._forks is not None
        try:
            self._forks.ready.result(timeout)
        except TimeoutError:
            raise _late(timeout) from None
        except NoForks:
            self._forks.stop()
            self._forks = None
            raise

    @property
    def forks(self) -> ForkServer | None:
        """The process from which engines are forked; None: they are not."""
        return self._forks

    def start_engine(
        self, rank: int, environment: Mapping[str, str], started: Callable[[Child], None], timeout: float = START_S
    ) -> None:
        """Start the engine of a rank.

        Args:
            rank: its rank; its previous engine was killed.
            environment: of the process.
            started: called with the process, on the thread that starts processes.
            timeout: seconds.
        """
        self._launch(timeout, self._start_engine, rank, environment, started, timeout)

    def _start_engine(
        self, rank: int, environment: Mapping[str, str], started: Callable[[Child], None], timeout: float
    ) -> None:
        log = self._log(f"rank{rank}")
        if self._forks is not None:
            self._start_forks()
            make_folder(os.path.dirname(log))
            order = {"arguments": ["engine", self._folder, *ENGINE_ARGS], "environment": self._whole(environment)}
            child = self._forks.fork({**order, "directory": os.getcwd(), "log": log})
            try:
                child.begun.result(timeout)
            except TimeoutError:
                child.begun.cancel()
                raise
        else:
            self._raise_trouble()
            begun = self._begun.pop(rank, None) or self._start("engine", ENGINE_ARGS, environment, log)
            child = watched(begun)
        self._engines[rank] = child
        started(child)

    def engine_died(self, rank: int, status: int | None) -> LaunchError:
        """The error for an engine that ended with this exit status while it started."""
        log = self._log(f"rank{rank}")
        return LaunchError(f"the engine of rank {rank} {end_of(log, status)} before it was ready.", tail(log))

    # -- how processes are started, on the thread

    def _start(
        self, kind: str, args: Iterable[str], environment: Mapping[str, str], log: str
    ) -> subprocess.Popen[bytes]:
        """Start a process of this kind: see ``child``.

        Raises:
            OSError: the system refuses.
        """
        make_folder(os.path.dirname(log))
        return interpreter.start([*CHILD, kind, self._folder, *args], self._whole(environment), log)

    def _whole(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process, by that of its rank."""
        profile = {"IPP_CLUSTER_ID": _ID, "IPP_PROFILE_DIR": self._profile}
        return {**os.environ, **profile, **environment, PARENT: str(os.getpid())}

    def _log(self, name: str) -> str:
        """The file for the output of a process. Its folder is made when one is started: nobody makes it again after the end."""
        return os.path.join(self._profile, "log", f"{name}.log")

    # -- the end

    def stop(self) -> None:
        """Kill what is left of the processes, and end the thread that starts them.

        Raises:
            OSError: a process did not end in time (TimeoutError is one).
        """
        if self._forks is not None:
            self._forks.stop()  # a fork may be waited for
        try:
            self.submit(self._stop).result(_STOP_S)
        finally:
            self._thread.close()
            if self._connecting is not None and self._connecting.ident is not None:
                self._connecting.join(_NOTED_S)  # it has seen the end of the controller, or is in ipyparallel

    def _stop(self) -> None:
        from ddpnb.ranks import descendants

        if self.controller is not None:
            descendants.end_child(self.controller)
        try:
            # A launch that was interrupted may have started an engine that nobody else knows of.
            descendants.end([child.pid for child in self._engines.values() if child.poll() is None])
        finally:
            for begun in self._begun.values():
                descendants.end_child(begun)
            self._begun.clear()
            if self._forks is not None:  # it may be another one by now
                self._forks.stop()

    def close(self) -> None:
        """The same, unless that was done; what does not end does not matter."""
        if not self.closed:
            with contextlib.suppress(OSError):
                self.stop()


def common(environments: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What is the same in all of these environments."""
    first, *others = environments
    return {name: value for name, value in first.items() if all(one.get(name) == value for one in others)}


def _late(timeout: float) -> LaunchError:
    return LaunchError(
        f"a process of the World did not start, or the previous one did not end, within {timeout:.0f} s.",
        "Is the machine very busy, or a process of a rank blocked in the kernel (state D in ps)?",
    )
