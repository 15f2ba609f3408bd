"""The ranks of a world as engines of ipyparallel, addressed in rank order."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psutil

from ddpnb.errors import LaunchError, WorldError
from ddpnb.ranks import descendants, sockets
from ddpnb.ranks.engines.client import Client, Reply
from ddpnb.ranks.engines.cluster import START_S, EngineCluster, common
from ddpnb.ranks.engines.replying import identity, in_json
from ddpnb.ranks.exit_reasons import cannot_start, tail
from ddpnb.ranks.forks import NoForks
from ddpnb.ranks.interpreter import Child
from ddpnb.ranks.process_samples import GONE, STOPPED, kernel_status
from ddpnb.ranks.rank_processes import Connection, OwnedRanks
from ddpnb.recording import phrases
from ddpnb.recording.protocol import DEVICE, FOLDER


class Engines(OwnedRanks):
    """One engine per rank.

    Args:
        cluster: which may have started the first processes already.
        fork: fork the ranks from one process with this imported (``fork_server.serve``); empty: do not.
    """

    ends_with_script = False

    def __init__(self, cluster: EngineCluster, fork: str = "") -> None:
        self._fork = fork
        self._owner = os.getpid()
        self.client: Client | None = None
        self.progress = lambda _ready, _wanted: None
        self._ids: dict[int, int] = {}  # rank -> engine id, of those that have registered
        self._asked: dict[int, Reply | None] = {}  # engine ids that were asked who they are, and answers to come
        self._met: dict[tuple[str, int], int] = {}  # (rank or host of an agent, process) -> engine id
        self._pids: dict[int, int] = {}
        self._children: dict[int, Child] = {}
        self._exits: dict[int, int | None] = {}
        self._killed: set[int] = set()  # processes of ranks that we have ended
        self._environments: dict[int, dict[str, str]] = {}
        self._cluster = cluster

    # -- start

    def start(self, environments: Mapping[int, dict[str, str]], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self._cluster.start_controller(timeout)
        if self._fork:
            self._cluster.start_forks(self._fork, common(environments.values()), timeout)
            self._connect([], deadline)  # meanwhile torch is imported
            self._wait_for_forks(deadline)
        for rank, environment in environments.items():
            self._start_engine(rank, environment, timeout)
        if not self._fork:
            self._connect(list(environments), deadline)
        self._wait_for(list(environments), deadline)

    def _wait_for_forks(self, deadline: float) -> None:
        try:
            self._cluster.wait_for_forks(max(0.0, deadline - time.monotonic()))
        except NoForks as error:
            error.warn()

    def _connect(self, starting: Sequence[int], deadline: float) -> None:
        """Wait for the controller, and connect to it, while these ranks start."""
        try:
            connecting = self._cluster.connect(Client, deadline)
        except RuntimeError as error:
            raise cannot_start(error) from None
        while not connecting.done():
            self._check_starting(starting, deadline, "the controller did not start")
            time.sleep(0.02)
        try:
            self.client = connecting.result()
        except Exception as error:
            self._check_starting((), deadline, "the controller did not start")
            raise LaunchError(f"the controller did not start: {error}.", tail(self._cluster.controller_log)) from None

    def _start_engine(self, rank: int, environment: dict[str, str], timeout: float = START_S) -> None:
        def started(child: Child) -> None:
            self._environments[rank] = environment
            self._pids[rank] = child.pid
            self._children[rank] = child
            self._killed.discard(child.pid)  # process IDs are reused
            self._exits.pop(rank, None)
            child.ended.add_done_callback(lambda _: self._note_end(rank, child))

        self._cluster.start_engine(rank, environment, started, timeout)

    def _note_end(self, rank: int, child: Child) -> None:
        """A process of a rank has ended. Called on any thread."""
        if self._children[rank] is child:  # else it was replaced before this was known
            self._exits.setdefault(rank, child.poll())
        with contextlib.suppress(WorldError, RuntimeError):  # the world is closed
            self._cluster.submit(self._end_left, rank, child.pid)

    def _end_left(self, rank: int, pid: int) -> None:
        """End what a process of a rank has left. On the thread that starts processes: none is started meanwhile."""
        if pid not in self._killed:  # else that was done, and there may be another process by now
            folder, others = self._environments[rank][FOLDER], self._living()
            descendants.end((), folder, rank, spare=others, seconds=descendants.SOON_S)

    def _living(self) -> list[int]:
        return [pid for rank, pid in list(self._pids.items()) if rank not in self._exits]

    def _wait_for(self, ranks: Iterable[int], deadline: float) -> None:
        """Wait for the engines of these ranks and learn which engine is which."""
        missing = list(ranks)
        wanted = len(missing)
        while missing:
            self._meet()
            for rank in list(missing):
                engine = self._met.get((str(rank), self._pids[rank]))
                if engine is not None:
                    self._ids[rank] = engine
                    missing.remove(rank)
                    self.progress(wanted - len(missing), wanted)
            if missing:
                self._check_starting(missing, deadline, "did not register")
                time.sleep(0.01)

    def _meet(self) -> None:
        """Ask engines that have registered since who they are, and note the answers that are there."""
        assert self.client is not None
        for engine in set(self.client.ids) - self._asked.keys():
            self._asked[engine] = self.client.call(engine, in_json, identity)
        for engine, answer in self._asked.items():
            if answer is not None and answer.ready():
                self._asked[engine] = None
                rank, pid, agent = answer.get()
                self._met[str(agent if agent is not None else rank), int(pid)] = engine

    def _check_starting(self, ranks: Sequence[int], deadline: float, what: str) -> None:
        """Raise LaunchError if these ranks, which start, can no longer do so, or not in time."""
        for rank in ranks:
            if rank in self._exits:
                raise self._cluster.engine_died(rank, self._exits[rank])
        self._cluster.check_controller()
        if time.monotonic() > deadline:
            hint = "If the machine is busy, give ddpnb.launch() or world.restart() a longer timeout=."
            if self.connection == "stopped":
                hint = "The controller of this world is stopped; continue it first (kill -CONT)."
            raise LaunchError(f"{phrases.ranks(ranks)}: {what} in time." if ranks else f"{what} in time.", hint)

    # -- state

    @property
    def connection(self) -> Connection:
        return self._cluster.connection

    def check_connection(self) -> None:
        self.check_owner()
        state = self.connection
        if state == "lost":
            raise WorldError(
                "the controller of this world has died; its ranks cannot be reached.",
                "Close the world (world.close()) and launch a new one.",
            )
        if state == "stopped" and (controller := self._cluster.controller) is not None:
            raise WorldError(
                "the controller of this world is stopped; its ranks cannot be reached.",
                f"kill -CONT {controller.pid} lets it continue; or close the world and launch a new one.",
            )

    def check_owner(self) -> None:
        if not self.owned:
            raise WorldError(
                f"this world belongs to process {self._owner}; this is a forked child of it.",
                "Use the world in the process that launched it.",
            )

    @property
    def owned(self) -> bool:
        return os.getpid() == self._owner

    def device(self, rank: int) -> str:
        return self._environments.get(rank, {}).get(DEVICE, "")

    def visible_devices(self, rank: int) -> str | None:
        return self._environments.get(rank, {}).get("CUDA_VISIBLE_DEVICES")

    def pid(self, rank: int) -> int:
        return self._pids[rank]

    def listens(self, rank: int) -> bool:
        return rank in self._ids

    def alive(self, rank: int) -> bool:
        pid = self._pids[rank]  # one that we have killed counts as dead, though it may take a moment to end
        return rank not in self._exits and pid not in self._killed and self._status(rank) != GONE

    def stopped(self, rank: int) -> bool:
        return self._status(rank) in STOPPED

    def _status(self, rank: int) -> str:
        """The kernel's letter for the rank's process: see ``kernel_status``."""
        return kernel_status(self._pids[rank])

    def exit_status(self, rank: int) -> int | None:
        if rank not in self._exits:
            return None
        status = self._exits[rank]
        return status if isinstance(status, int) else -int(signal.SIGKILL)

    # -- requests

    def exchange(self, messages: Mapping[int, Mapping[str, Any]], timeout: float) -> dict[int, dict[str, Any]]:
        self.check_owner()
        asked = {rank: message for rank, message in messages.items() if rank in self._ids}
        folder = next((self._environments[rank][FOLDER] for rank in asked), "")
        return sockets.ask_each(folder, asked, timeout) if asked else {}

    def call(self, rank: int, function: Callable[..., Any], *args: Any) -> Reply:
        return self.begin(rank, in_json, function, *args)

    def begin(self, rank: int, function: Callable[..., Any], *args: Any) -> Reply:
        self.check_connection()
        assert self.client is not None
        self.client.history.clear()  # it would grow with every call
        return self.client.call(self.engine_id(rank), function, *args)

    def engine_id(self, rank: int) -> int:
        """The number of the rank's engine.

        Raises:
            WorldError: its process is being replaced, or could not be replaced.
        """
        self.check_owner()  # every request passes here
        engine = self._ids.get(rank)
        if engine is None:
            raise WorldError(f"the process of rank {rank} cannot be reached.", f"world.restart({rank}) replaces it.")
        return engine

    # -- stop

    def kill(self, rank: int) -> None:
        self.check_owner()
        if rank in self._pids:
            others = [pid for pid in self._living() if pid != self._pids[rank]]
            descendants.end(self._doomed([rank]), self._environments[rank][FOLDER], rank, spare=others)

    def _doomed(self, ranks: Iterable[int]) -> list[int]:
        """The processes of these ranks, which count as killed from now on."""
        pids: list[int] = []
        for rank in ranks:
            pid = self._pids[rank]
            self._killed.add(pid)
            if rank not in self._exits or not psutil.pid_exists(pid):  # else its number is another process's by now
                pids.append(pid)
        return pids

    def replace(
        self, environments: Mapping[int, dict[str, str]], timeout: float, prepare: Callable[[], None] = lambda: None
    ) -> None:
        for rank in environments:
            self.kill(rank)
        prepare()
        try:
            for rank, environment in environments.items():
                self._ids.pop(rank, None)  # no engine answers under this number any more
                self._start_engine(rank, environment, max(timeout, START_S))
            self._wait_for(environments, time.monotonic() + timeout)
        except BaseException:  # a rank that runs and cannot be reached must not look alive
            with contextlib.suppress(TimeoutError, WorldError):
                self._cluster.submit(self._end_unreachable, list(environments)).result(timeout=START_S)
            raise

    def _end_unreachable(self, ranks: Iterable[int]) -> None:
        """Kill those that did not register. After an interrupt a start may still have been under way on this thread."""
        for rank in ranks:
            if rank not in self._ids:
                self.kill(rank)

    def stop(self) -> None:
        if self._cluster.closed or not self.owned:
            return
        doomed = self._doomed(list(self._pids))
        left = [
            pid
            for folder in {environment[FOLDER] for environment in self._environments.values()}
            for pid in descendants.end(doomed, folder)
        ]
        if self.client is not None:
            self.client.close(linger=0)
        try:
            self._cluster.stop()
        except OSError:  # a log that cannot be read does not matter
            left += [pid for pid in self._pids.values() if kernel_status(pid) != GONE]
        descendants.check_ended(dict.fromkeys(left), "world")
