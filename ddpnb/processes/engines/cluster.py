"""The controller and the engine processes of a world, started by ipyparallel.

Each rank is an engine set of its own (``rank0``, ``rank1`` ...): this gives each its environment before torch is
imported, and lets one be replaced without the others. The engines of a new world are started first (``early``), then the
controller: it is ready before they have torch imported.

Nannies are disabled: ``Engines`` does their work (signals, prompt notice of a death), and four of them would cost
110 MB and half a second.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any

from ipyparallel import Cluster

from ddpnb.errors import DdpnbError, LaunchError
from ddpnb.processes import descendants
from ddpnb.processes.engines.client import Client
from ddpnb.processes.engines.forks import Forks, NoForks, RankLauncher
from ddpnb.processes.engines.starter import CHILD, CLUSTER_ID, ENGINE_ARGS, NEVER_S, Starter
from ddpnb.processes.environment import LOOPBACK
from ddpnb.processes.exit_reasons import cannot_start, end_of, tail
from ddpnb.processes.process_samples import GONE, STOPPED, kernel_status
from ddpnb.processes.rank_processes import Connection
from ddpnb.recorder.protocol import PARENT

START_S = 20.0  # for one process to start, or to end after SIGKILL
_STOP_S = 30.0  # for all processes of a world to end after SIGKILL
_NOTED_S = 1.0  # after which the exit status of a process that has ended is known
_CONTROLLER_ARGS = [
    "--IPController.use_threads=True",
    "--IPController.db_class=NoDB",  # by default it keeps every task with its result
    f"--IPController.registration_timeout={NEVER_S}",
    "--HeartMonitor.period=100",  # see ``controller``
    "--HeartMonitor.max_heartmonitor_misses=1000000",  # a stopped rank must not be forgotten
]


class EngineCluster:
    """Starts and stops the processes of one world.

    Args:
        folder: for the files of ipyparallel.
        address: of this host, at which the controller listens. What is not the loopback is encrypted (CURVE).
        starter: which may have started the engines already; by default a new one.
    """

    def __init__(self, folder: str, address: str = LOOPBACK, starter: Starter | None = None) -> None:
        self._folder = folder
        self._forks: Forks | None = None
        self._imports, self._common = "", dict[str, str]()
        log = logging.getLogger("ddpnb.processes")
        log.addHandler(logging.NullHandler())
        log.propagate = False
        self._starter = starter if starter is not None else Starter(folder)
        try:
            self._cluster = Cluster(
                n=0,
                profile_dir=self._starter.profile,
                cluster_id=CLUSTER_ID,
                cluster_file="",
                delay=0,
                engines=RankLauncher,
                controller_args=[
                    *_CONTROLLER_ARGS,
                    f"--ip={address}",
                    f"--IPController.enable_curve={address != LOOPBACK}",
                ],
                send_engines_connection_env=False,
                load_profile=False,  # it is new and empty, and to look takes a tenth of a second
                shutdown_atexit=False,
                log=log,
            )
        except BaseException:
            if starter is None:
                self._starter.close()
            raise

    @property
    def closed(self) -> bool:
        return self._starter.closed

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run ``work`` on the thread that starts processes.

        Raises:
            WorldError: the world is closed.
        """
        return self._starter.submit(work)

    def _launch(self, work: Coroutine[Any, Any, Any], timeout: float) -> None:
        """Start a process.

        Raises:
            LaunchError: the system refuses, or it takes longer.
        """
        try:
            self.submit(work).result(timeout=timeout)
        except TimeoutError:
            raise LaunchError(
                f"a process of the World did not start, or the previous one did not end, within {timeout:.0f} s.",
                "Is the machine very busy, or a process of a rank blocked in the kernel (state D in ps)?",
            ) from None
        except DdpnbError:
            raise
        except (OSError, RuntimeError) as error:  # RuntimeError: no more threads
            raise cannot_start(error) from None

    def start_controller(self, timeout: float) -> None:
        """Start the controller; ``connect()`` waits for it."""
        self._launch(self._start_controller(), timeout)

    async def _start_controller(self) -> None:
        os.environ[PARENT] = str(os.getpid())
        await self._cluster.start_controller(controller_cmd=[*CHILD, "controller", self._folder])

    def start_forks(self, imports: str, environment: Mapping[str, str], timeout: float) -> None:
        """Start a process from which engines are forked from now on; ``wait_for_forks()`` waits for it.

        Args:
            imports: see ``fork_server.serve``.
            environment: what is the same for all of them.
            timeout: seconds.
        """
        self._imports, self._common = imports, dict(environment)
        self._launch(self._start_forks(), timeout)

    async def _start_forks(self) -> None:
        if self._forks is not None:
            self._forks.stop()
        begun = self._starter.taken_forks() or self._starter.start_forks(self._imports, self._common)
        self._forks = Forks(begun, self._starter.forks_log, asyncio.get_running_loop())

    def wait_for_forks(self, timeout: float) -> None:
        """Wait until engines can be forked.

        Raises:
            NoForks: they must not be: from now on they start in new interpreters.
            LaunchError: the process has died.
        """
        assert self._forks is not None
        try:
            self._launch(self._forks.ready(), timeout)
        except NoForks:
            self._forks.stop()
            self._forks = None
            raise

    @property
    def forks(self) -> Forks | None:
        """The process from which engines are forked; None: they are not."""
        return self._forks

    def start_engine(
        self, rank: int, environment: Mapping[str, str], started: Callable[[Any], None], timeout: float = START_S
    ) -> None:
        """Start the engine of a rank, after its previous one has ended.

        Args:
            rank: its engine set.
            environment: of the process.
            started: called with ipyparallel's launcher of the process, on the thread that starts processes.
            timeout: seconds.
        """
        self._launch(self._start_engine(rank, environment, started), timeout)

    async def _start_engine(self, rank: int, environment: Mapping[str, str], started: Callable[[Any], None]) -> None:
        name = f"rank{rank}"
        if name in self._cluster.engines:
            await self._cluster.stop_engines(name)
        if self._forks is not None and not self._forks.running:
            await self._start_forks()
        begun = self._starter.taken(rank)
        try:
            await self._cluster.start_engines(
                n=1,
                engine_set_id=name,
                environment={**environment, PARENT: str(os.getpid())},
                engine_cmd=[*CHILD, "engine", self._folder],
                engine_args=ENGINE_ARGS,
                output_file=self._starter.log(rank),
                begun=begun.process if begun is not None else None,
                forks=self._forks,
            )
        except BaseException:
            failed: Any = self._cluster.engines.pop(name, None)
            if (
                failed is not None and failed.pid > 0
            ):  # started, but cannot be watched: there is no thread left for that
                descendants.end([failed.pid], seconds=descendants.SOON_S)
            if begun is not None:
                begun.end()
            raise
        started(self._cluster.engines[name])

    def connect(self, deadline: float) -> Future[Client]:
        """Make a client in a thread of its own: it blocks until the controller answers."""
        client: Future[Client] = Future()

        def connect() -> None:
            try:
                made = Client(
                    self.submit(self._connection()).result(),
                    cluster=self._cluster,
                    profile_dir=self._cluster.profile_dir,
                    ipython_dir=self._cluster.profile_dir,  # not that of a home that may be missing or read-only
                    cluster_id=self._cluster.cluster_id,
                    timeout=max(1, math.ceil(deadline - time.monotonic())),
                )
            except BaseException as error:
                client.set_exception(error)
                return
            client.set_result(made)
            if self.closed:  # too late: nobody waits for it any more
                made.close(linger=0)

        threading.Thread(target=connect, name="ddpnb client", daemon=True).start()
        return client

    async def _connection(self, kind: str = "client") -> Any:
        return (await self.controller.get_connection_info(timeout=-1))[kind]  # the launch has its own limit

    def engine_connection(self) -> dict[str, Any]:
        """What an engine on another host needs to connect, keys included; the controller is up."""
        return dict(self.submit(self._connection("engine")).result(timeout=START_S))

    @property
    def controller(self) -> Any:
        """ipyparallel's launcher of the controller; None before it was started."""
        return self._cluster.controller

    @property
    def connection(self) -> Connection:
        """The state of the controller, through which ranks are reached, according to the kernel."""
        controller = self.controller
        status = kernel_status(controller.pid) if controller is not None and controller.running else GONE
        return "lost" if status == GONE else "stopped" if status in STOPPED else "open"

    def check_controller(self) -> None:
        """Raise an exception if the controller has died.

        Raises:
            LaunchError: with how it ended and the end of its log.
        """
        if self.connection != "lost":
            return
        controller = self.controller
        noted = time.monotonic() + _NOTED_S
        while controller.running and time.monotonic() < noted:
            time.sleep(0.01)
        status = None if controller.running else (controller.stop_data or {}).get("exit_code")
        raise LaunchError(f"the controller of this world has died: it {end_of(controller, status)}.", tail(controller))

    def engine_died(self, rank: int, status: int | None) -> LaunchError:
        """The error for an engine that ended with this exit status while it started."""
        launcher = self._cluster.engines.get(f"rank{rank}")
        return LaunchError(f"the engine of rank {rank} {end_of(launcher, status)} before it was ready.", tail(launcher))

    def stop(self) -> None:
        """Kill what is left of the processes, and end the thread that starts them.

        Raises:
            OSError: a process did not end in time (TimeoutError is one), or a log cannot be read.
        """
        try:
            self.submit(self._stop()).result(timeout=_STOP_S)
        finally:
            self._starter.stop()

    async def _stop(self) -> None:
        controller = self.controller
        if controller is not None and controller.running:
            descendants.end([controller.pid])
        try:
            await self._cluster.stop_cluster()
        finally:
            self._starter.end_begun()
            if self._forks is not None:
                self._forks.stop()
            # A launch that was interrupted may have started an engine that was not registered.
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
