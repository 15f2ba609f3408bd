"""The processes of a world: one controller and one engine per rank, addressed in rank order.

Each rank is an engine set of its own (``rank0``, ``rank1`` ...): that gives each its environment
before torch is imported, and lets one be replaced without the others. Controller and engines start
at the same time; the engines have torch imported when the controller is there.

Nannies are off: what they do (signals, prompt notice of a death) the launcher does here by itself,
and four of them would cost 110 MB and half a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Literal

import psutil
from ipyparallel import Cluster
from ipyparallel.cluster.launcher import LocalEngineLauncher

from ddpnb.errors import LaunchError, WorldError
from ddpnb.processes import descendants
from ddpnb.processes.client import Answer, Client
from ddpnb.processes.exit_reasons import cannot_start, end_of, tail
from ddpnb.processes.host import GONE, STOPPED, kernel_status
from ddpnb.processes.replying import in_json
from ddpnb.recorder.protocol import DEVICE, FOLDER, PARENT

# By its path, so that the working directory is not on the import path: a file of the user must not stand in for a module
# of ours. ``-P`` would do that too, but scripts would see it in sys.flags, and multiprocessing would hand it on to the
# interpreters that they start.
_CHILD = [sys.executable, os.path.join(os.path.dirname(__file__), "child.py")]
_NEVER_S = 86_400
_END_S = 20.0  # that one process may take to be started, or to be gone after SIGKILL
_STOP_S = 30.0  # that all processes of a world may take to be gone after SIGKILL
_NOTED_S = 1.0  # after which the exit status of a process that has ended is known
_ENGINE_ARGS = [
    "--IPEngine.enable_nanny=False",
    # The launcher's own time-out is the only one: it ends engines that did not start by then.
    f"--IPEngine.timeout={_NEVER_S}",
    f"--IPEngine.wait_for_url_file={_NEVER_S}",
    "--IPEngine.max_heartbeat_misses=0",  # a rank does not end because its controller is slow or has died
    "--IPEngine.startup_command=import ddpnb.recorder.rank as _r; _r.attach(); del _r",
]
_CONTROLLER_ARGS = [
    "--IPController.use_threads=True",
    "--ip=127.0.0.1",
    "--IPController.db_class=NoDB",  # by default it keeps every task with its result
    f"--IPController.registration_timeout={_NEVER_S}",
    "--HeartMonitor.period=100",  # an engine counts as there after its first beat
    "--HeartMonitor.max_heartmonitor_misses=1000000",  # a stopped rank must not be forgotten
]


class RankLauncher(LocalEngineLauncher):
    """Starts the engine of one rank."""

    def start(self, n: int = 1) -> None:  # noqa: ARG002 (a launcher of one)
        super().start()


class Engines:
    """Controller, engines and client of one world.

    Args:
        folder: the world's own folder.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._owner = os.getpid()
        self.client: Client | None = None
        #: called with (ready, wanted) while engines come up
        self.progress: Callable[[int, int], None] = lambda ready, wanted: None
        self._ids: dict[int, int] = {}  # rank -> engine id, of those that can be reached
        self._asked: set[int] = set()  # engine ids that were ever asked which rank they are
        self._pids: dict[int, int] = {}
        self._exits: dict[int, int | None] = {}
        self._killed: set[int] = set()  # processes of ranks that we have ended
        self._environments: dict[int, dict[str, str]] = {}
        log = logging.getLogger("ddpnb.processes")
        log.addHandler(logging.NullHandler())
        log.propagate = False
        self._cluster = Cluster(
            n=0,
            profile_dir=os.path.join(folder, "cluster"),
            cluster_id="world",
            cluster_file="",
            delay=0,
            engines=RankLauncher,
            controller_args=_CONTROLLER_ARGS,
            send_engines_connection_env=False,
            shutdown_atexit=False,
            log=log,
        )
        # One thread starts everything: on Linux a child is notified of the death of the *thread* that
        # started it, so this one lives as long as the world.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ddpnb cluster", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def device(self, rank: int) -> str:
        """The device that the rank was given."""
        return self._environments.get(rank, {}).get(DEVICE, "")

    def _launch(self, work: Coroutine[Any, Any, Any], within: float = _END_S) -> None:
        """Start a process within ``within`` seconds.

        Raises:
            LaunchError: the system refuses, or it takes longer.
        """
        try:
            self._do(work).result(timeout=within)
        except TimeoutError:
            raise LaunchError(
                f"a process of the World did not start, or the previous one did not end, within {within:.0f} s.",
                "Is the machine very busy, or a process of a rank blocked in the kernel (state D in ps)?",
            ) from None
        except WorldError:
            raise
        except (OSError, RuntimeError) as error:  # RuntimeError: no more threads
            raise cannot_start(error) from None

    def _do(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        if self._loop.is_closed():
            work.close()
            raise WorldError("this world is closed.", "Launch a new one: ddpnb.launch(n).")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    # -- start

    def start(self, environments: dict[int, dict[str, str]], timeout: float) -> None:
        """Start controller and engines, and wait until every rank is there.

        Raises:
            LaunchError: a process died, or did not start within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        self._launch(self._start_controller(), timeout)
        for rank, environment in environments.items():
            self._launch(self._start_engine(rank, environment), timeout)
        try:
            connecting = self._connect(deadline)
        except RuntimeError as error:
            raise cannot_start(error) from None
        while not connecting.done():
            self._check_alive(environments, deadline, "the controller did not start")
            time.sleep(0.02)
        try:
            self.client = connecting.result()
        except Exception as error:
            self._check_alive((), deadline, "")
            raise LaunchError(f"the controller did not start: {error}.", tail(self._cluster.controller)) from None
        self._wait_for(list(environments), deadline)

    def _connect(self, deadline: float) -> Future[Client]:
        """A client of the controller, made in a thread of its own: it blocks until the controller answers."""
        client: Future[Client] = Future()

        def connect() -> None:
            try:
                made = Client(
                    self._do(self._connection()).result(),
                    cluster=self._cluster,
                    profile_dir=self._cluster.profile_dir,
                    cluster_id=self._cluster.cluster_id,
                    timeout=max(1, math.ceil(deadline - time.monotonic())),
                )
            except BaseException as error:
                client.set_exception(error)
                return
            client.set_result(made)
            if self._loop.is_closed():  # too late: nobody waits for it any more
                made.close(linger=0)

        threading.Thread(target=connect, name="ddpnb client", daemon=True).start()
        return client

    async def _connection(self) -> Any:
        controller = self._cluster.controller
        assert controller is not None
        return (await controller.get_connection_info(timeout=-1))["client"]  # the launch has its own limit

    async def _start_controller(self) -> None:
        os.environ[PARENT] = str(os.getpid())
        await self._cluster.start_controller(controller_cmd=[*_CHILD, "controller", self.folder])

    async def _start_engine(self, rank: int, environment: dict[str, str]) -> None:
        name = f"rank{rank}"
        if name in self._cluster.engines:
            await self._cluster.stop_engines(name)
        try:
            await self._cluster.start_engines(
                n=1,
                engine_set_id=name,
                environment={**environment, PARENT: str(os.getpid())},
                engine_cmd=[*_CHILD, "engine", self.folder],
                engine_args=_ENGINE_ARGS,
            )
        except BaseException:
            failed: Any = self._cluster.engines.pop(name, None)
            if failed is not None and failed.pid > 0:  # started, and cannot be watched: no thread is left for that
                os.killpg(failed.pid, signal.SIGKILL)
            raise
        launcher: Any = self._cluster.engines[name]
        self._environments[rank] = environment
        self._pids[rank] = launcher.pid
        self._killed.discard(launcher.pid)  # numbers come again
        self._exits.pop(rank, None)
        launcher.on_stop(lambda data: self._note_end(rank, data))

    def _note_end(self, rank: int, data: dict[str, Any]) -> None:
        """A process of a rank has ended. Called on the thread that starts processes: none is started meanwhile."""
        pid = data.get("pid")
        if pid == self._pids[rank]:  # else it was replaced before this was known
            self._exits.setdefault(rank, data.get("exit_code"))
        if pid not in self._killed:  # else that was done, and there may be another process by now
            descendants.end(self._environments[rank][FOLDER], rank, self._living())

    def _living(self) -> list[int]:
        return [pid for rank, pid in list(self._pids.items()) if rank not in self._exits]

    def _wait_for(self, ranks: Iterable[int], deadline: float) -> None:
        """Wait for the engines of these ranks and learn which engine is which."""
        assert self.client is not None
        missing = {self._pids[rank]: rank for rank in ranks}
        asked: dict[int, Answer] = {}
        wanted = len(missing)
        while missing:
            for engine in set(self.client.ids) - self._asked:
                self._asked.add(engine)
                asked[engine] = self._ask(engine, in_json, os.getpid)
            for engine, answer in list(asked.items()):
                if answer.ready():
                    del asked[engine]
                    rank = missing.pop(answer.get(), None)
                    if rank is not None:
                        self._ids[rank] = engine
                        self.progress(wanted - len(missing), wanted)
            if missing:
                self._check_alive(missing.values(), deadline, "did not register")
                time.sleep(0.01)

    def _check_alive(self, ranks: Iterable[int], deadline: float, what: str) -> None:
        for rank in ranks:
            if rank in self._exits:
                launcher = self._cluster.engines.get(f"rank{rank}")
                raise LaunchError(
                    f"the engine of rank {rank} {end_of(launcher, self._exits[rank])} before it was ready.",
                    tail(launcher),
                )
        if self.controller_state == "died":
            controller: Any = self._cluster.controller
            noted = time.monotonic() + _NOTED_S
            while controller.running and time.monotonic() < noted:
                time.sleep(0.01)
            how = end_of(controller, None if controller.running else (controller.stop_data or {}).get("exit_code"))
            raise LaunchError(f"the controller of this world has died: it {how}.", tail(controller))
        if time.monotonic() > deadline:
            late = ", ".join(str(rank) for rank in ranks)
            hint = "If the machine is busy, use a longer timeout=."
            if self.controller_state == "stopped":
                hint = "The controller of this world is stopped; continue it first (kill -CONT)."
            raise LaunchError(f"rank {late}: {what} in time.", hint)

    # -- looks

    @property
    def controller_state(self) -> Literal["runs", "stopped", "died"]:
        """By the kernel, at this moment: no rank can be asked for anything while its controller does not run."""
        controller = self._cluster.controller
        status = kernel_status(controller.pid) if controller is not None and controller.running else GONE
        return "died" if status == GONE else "stopped" if status in STOPPED else "runs"

    @property
    def controller_alive(self) -> bool:
        return self.controller_state != "died"

    def check_controller(self) -> None:
        """Raise an exception if no rank can be reached.

        Raises:
            WorldError: the controller has died or is stopped, or this is a forked child of the launcher.
        """
        self.check_process()
        if self.controller_state == "died":
            raise WorldError(
                "the controller of this world has died; its ranks cannot be reached.",
                "Close the world (world.close()) and launch a new one.",
            )
        if self.controller_state == "stopped":
            controller: Any = self._cluster.controller
            raise WorldError(
                "the controller of this world is stopped; its ranks cannot be reached.",
                f"kill -CONT {controller.pid} lets it continue; or close the world and launch a new one.",
            )

    def check_process(self) -> None:
        """Raise WorldError in a forked child: it has none of the threads that serve the world."""
        if not self.mine:
            raise WorldError(
                f"this world belongs to process {self._owner}; this is a forked child of it.",
                "Use the world in the process that launched it.",
            )

    @property
    def mine(self) -> bool:
        """Whether this process launched the world; False in a forked child."""
        return os.getpid() == self._owner

    def pid(self, rank: int) -> int:
        return self._pids[rank]

    def alive(self, rank: int) -> bool:
        """Whether the rank's process lives, by the kernel: its exit status is known a moment later.

        One that we have killed does not, though it may take a moment to end.
        """
        pid = self._pids[rank]
        return rank not in self._exits and pid not in self._killed and kernel_status(pid) != GONE

    def exit_status(self, rank: int) -> int | None:
        """None while the rank's process lives, or its status is not known yet; negative: the signal that killed it."""
        if rank not in self._exits:
            return None
        status = self._exits[rank]
        return status if isinstance(status, int) else -int(signal.SIGKILL)

    # -- calls

    def call(self, rank: int, function: Callable[..., Any], *args: Any) -> Answer:
        """Call an importable function on the main thread of ``rank``; it answers in JSON."""
        return self.begin(rank, in_json, function, *args)

    def begin(self, rank: int, function: Callable[..., Any], *args: Any) -> Answer:
        """Call an importable function on the main thread of ``rank``; what it returns can be loaded from the answer."""
        self.check_controller()
        assert self.client is not None
        self.client.history.clear()  # it would grow with every call
        return self._ask(self.engine_id(rank), function, *args)

    def _ask(self, engine: int, function: Callable[..., Any], *args: Any) -> Answer:
        assert self.client is not None
        with self.client.own_calls():
            return Answer(self.client[engine].apply_async(function, *args))

    def engine_id(self, rank: int) -> int:
        """The number under which the rank can be asked.

        Raises:
            WorldError: its process is being replaced, or was not replaced with success.
        """
        self.check_process()  # all requests to a rank pass here
        engine = self._ids.get(rank)
        if engine is None:
            raise WorldError(f"the process of rank {rank} cannot be reached.", f"world.restart({rank}) replaces it.")
        return engine

    def reachable(self, rank: int) -> bool:
        """Whether the rank's process, alive or not, has registered with the controller."""
        return rank in self._ids

    # -- stop

    def kill(self, rank: int) -> None:
        """End the process of ``rank`` and all that it started."""
        self.check_process()
        if rank in self._pids:
            self._kill(rank)
            others = [pid for pid in self._living() if pid != self._pids[rank]]
            descendants.end(self._environments[rank][FOLDER], rank, others)

    def _kill(self, rank: int) -> None:
        pid = self._pids[rank]
        self._killed.add(pid)
        if rank in self._exits and psutil.pid_exists(pid):
            return  # it was waited for, and its number is another process's by now
        family: list[psutil.Process] = []
        try:
            family = psutil.Process(pid).children(recursive=True) if rank not in self._exits else []
        except psutil.Error:
            pass
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        for process in family:
            try:
                process.kill()
            except psutil.Error:
                pass

    def replace(
        self, environments: Mapping[int, dict[str, str]], timeout: float, prepare: Callable[[], None] = lambda: None
    ) -> None:
        """Kill the engines of these ranks and start new ones with the same rank numbers.

        Args:
            environments: of the ranks to replace.
            timeout: seconds for the new processes to come up.
            prepare: called when the old processes have been killed, and before new ones are started.

        Raises:
            LaunchError: a process could not be ended or started; these ranks are then dead.
        """
        for rank in environments:
            self.kill(rank)
        prepare()
        try:
            for rank, environment in environments.items():
                self._ids.pop(rank, None)  # nobody answers under this number any more
                self._launch(self._start_engine(rank, environment))
            self._wait_for(environments, time.monotonic() + timeout)
        except BaseException:  # a rank that runs and cannot be reached must not look alive
            with contextlib.suppress(TimeoutError, WorldError):
                self._do(self._end_unreachable(environments)).result(timeout=_END_S)
            raise

    async def _end_unreachable(self, ranks: Iterable[int]) -> None:
        """Kill those that did not register. After an interrupt a start may still have been under way on this thread."""
        for rank in ranks:
            if rank not in self._ids:
                self.kill(rank)

    def stop(self) -> None:
        """End everything that was started. Safe to call twice, and at any moment of a start.

        In a forked child it does nothing: the world is its parent's.

        Raises:
            WorldError: a process did not end.
        """
        if self._loop.is_closed() or not self.mine:
            return
        for rank in list(self._pids):
            self._kill(rank)
        for folder in {environment[FOLDER] for environment in self._environments.values()}:
            descendants.end(folder)
        if self.client is not None:
            self.client.close(linger=0)
        try:
            self._do(self._stop_cluster()).result(timeout=_STOP_S)
        except OSError:  # a time-out is one too; and a log that cannot be read does not matter
            left = [pid for pid in self._pids.values() if kernel_status(pid) != GONE]
            if left:
                raise WorldError(
                    f"processes of this world did not end: {', '.join(map(str, left))}.",
                    "They were killed and are blocked in the kernel (state D in ps): look at the disk or the driver.",
                ) from None
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)
            if not self._loop.is_running():
                self._loop.close()

    async def _stop_cluster(self) -> None:
        controller = self._cluster.controller
        if controller is not None and controller.running:
            os.killpg(controller.pid, signal.SIGKILL)  # with all that it has started
        try:
            await self._cluster.stop_cluster()
        finally:
            # A launch that was interrupted may have started an engine that nobody noted.
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
