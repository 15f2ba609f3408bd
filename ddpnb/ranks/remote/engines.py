"""The ranks of a world on several hosts: engines of its own controller, which an agent on each host starts."""

from __future__ import annotations

import glob
import math
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ddpnb.errors import LaunchError, WorldError
from ddpnb.ranks.devices import Plan
from ddpnb.ranks.engines.client import Reply
from ddpnb.ranks.engines.cluster import EngineCluster
from ddpnb.ranks.engines.engines import Engines
from ddpnb.ranks.environment import Port, working_directory
from ddpnb.ranks.exit_reasons import in_words
from ddpnb.ranks.outside import Outside
from ddpnb.ranks.process_samples import GONE, ProcessSample
from ddpnb.ranks.remote.asking import ask_hosts
from ddpnb.ranks.remote.hosts import Hosts
from ddpnb.ranks.remote.link import LATE_S, SILENT_S, STILL_RUNS, Link
from ddpnb.ranks.remote.outside import OutsideOnHosts
from ddpnb.ranks.remote.world_agents import WorldAgents
from ddpnb.recording import phrases
from ddpnb.recording.files import private
from ddpnb.recording.protocol import CLOCK

_LOOK_S = 3.0  # for a look after a process was ended
_RENEW_S = 30.0  # for an agent in place of one that has ended
#: of a rank that has ended with the agent of its host
_LOST: dict[str, Any] = {"exit": -signal.SIGKILL, "sample": ProcessSample(), "gpu": {}, "queued": None}
_INTERFACE = "GLOO_SOCKET_IFNAME"  # otherwise gloo takes the address of the host's name, which may be the loopback


class _LookedReply(Reply):
    """The answer of a rank, which is ready when the files that the rank has written before are here too."""

    def __init__(self, reply: Reply, link: Link) -> None:
        super().__init__(reply.result)
        self._link = link
        self._wanted: int | None = None

    def ready(self) -> bool:
        if not super().ready():
            return False
        if self._wanted is None:
            self._wanted = self._link.next_look
        return self._link.has_looked(self._wanted)

    def wait(self, timeout: float | None = None) -> None:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        super().wait(timeout)
        while not self.ready() and time.monotonic() < deadline:
            time.sleep(0.005)

    def get(self, timeout: float | None = None) -> Any:
        self.wait(timeout)
        return super().get(0)


class RemotePort(Port):
    """A port that the agent of a host keeps free."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.port = int(link.request("reserve"))

    def release(self) -> None:
        if not self._link.closed and not self._link.ended and self._link.silent_s < LATE_S:
            self._link.request("free", self.port)


class RemoteEngines(Engines):
    """One engine per rank, on the hosts of a plan.

    Args:
        cluster: with the controller.
        folder: the world's own folder.
        plan: which rank is on which host.
        hosts: the same hosts.
    """

    def __init__(self, cluster: EngineCluster, folder: str, plan: Plan, hosts: Hosts) -> None:
        super().__init__(cluster)
        self.hosts = plan.hosts
        self._hosts = hosts
        self._folder = folder
        self._put: dict[tuple[str, str], float] = {}  # files that a host has: their times
        self._agents: WorldAgents | None = None
        self._lost: set[int] = set()  # ranks that have ended with the agent of their host

    # -- start

    def prepare(self, memory: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self._cluster.start_controller(timeout)
        self._connect((), deadline)
        connection, folders = self._cluster.engine_connection(), (memory, self._folder)
        self._agents = WorldAgents(self._hosts, folders, connection)
        self._agents.start([host.name for host in self._hosts.all], deadline)

    @property
    def links(self) -> dict[str, Link]:
        """The link to each host."""
        return self._agents.links if self._agents is not None else {}

    def _renew_agents(self, ranks: Iterable[int], timeout: float) -> None:
        """Start an agent on hosts of these ranks where it has ended; all ranks there have ended with it.

        Raises:
            LaunchError: it does not start.
            WorldError: a host does not answer.
        """
        hosts = dict.fromkeys(self.hosts[rank] for rank in ranks)
        ended = [host for host in hosts if self.links[host].ended]
        if ended and self._agents is not None:
            self._lost.update(rank for host in ended for rank in self._on(host))
            self._put = {place: at for place, at in self._put.items() if place[0] not in ended}
            self._agents.start(ended, time.monotonic() + timeout)
        self.check_heard(ranks)

    @property
    def address(self) -> str:
        return self._hosts.master

    def reserve_port(self) -> Port:
        self._renew_agents([0], _RENEW_S)
        return RemotePort(self._link(0))

    def start(self, environments: Mapping[int, dict[str, str]], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for rank, environment in environments.items():
            self._start_engine(rank, environment, timeout)
        self._wait_for(list(environments), deadline)

    def _start_engine(self, rank: int, environment: dict[str, str], timeout: float = 20.0) -> None:
        link = self._link(rank)
        interface = self._hosts.interfaces.get(link.host, "")
        link.clocks[rank] = link.ahead_ns
        environment = environment | {CLOCK: str(link.clocks[rank])}
        count = link.mirror.starts.setdefault(rank, 1)
        self._environments[rank] = environment
        defaults = {_INTERFACE: interface} if interface else {}
        self._pids[rank] = int(
            link.request("start", rank, environment, defaults, working_directory(), count, timeout=timeout)
        )
        self._exits.pop(rank, None)
        self._lost.discard(rank)

    def _check_starting(self, ranks: Sequence[int], deadline: float, what: str) -> None:
        for rank in ranks:
            if self.exit_status(rank) is not None:
                ended = in_words(self.exit_status(rank) or 0)
                told = self._link(rank).request("log", rank)
                raise LaunchError(
                    f"the engine of rank {rank} on host {self.hosts[rank]} {ended} before it was ready.",
                    "Its last lines:\n    " + "\n    ".join(str(told).splitlines()[-12:]) if told else "",
                )
        super()._check_starting(ranks, deadline, what)

    # -- state, of which the last look at each host says what is known

    def outside(self) -> Outside:
        return OutsideOnHosts(self)

    def host_of(self, rank: int) -> str:
        return self.hosts[rank]

    def silent_hosts(self) -> dict[str, tuple[int, ...]]:
        return {host: self._on(host) for host in (self._agents.late() if self._agents is not None else ())}

    def _on(self, host: str) -> tuple[int, ...]:
        return tuple(rank for rank, where in enumerate(self.hosts) if where == host)

    def state(self, rank: int) -> dict[str, Any] | None:
        link = self._link(rank)
        if link.ended:
            self._lost.update(self._on(link.host))
        return _LOST if rank in self._lost else link.state(self._pids.get(rank, 0))

    def clock_ns(self, rank: int) -> int:
        """What the rank adds to the clock of its host."""
        return self._link(rank).clocks.get(rank, 0)

    def _link(self, rank: int) -> Link:
        return self.links[self.hosts[rank]]

    def _status(self, rank: int) -> str:
        state = self.state(rank)
        return state["sample"].status if state is not None else "S"  # it was started a moment ago

    def alive(self, rank: int) -> bool:
        return self.exit_status(rank) is None and self._status(rank) != GONE

    def exit_status(self, rank: int) -> int | None:
        state = self.state(rank)
        return state["exit"] if state is not None else None

    # -- requests

    def exchange(self, messages: Mapping[int, Mapping[str, Any]], timeout: float) -> dict[int, dict[str, Any]]:
        self.check_owner()
        silent = self.silent_hosts()
        asked: dict[str, dict[int, Mapping[str, Any]]] = {}
        for rank in (rank for rank in messages if rank in self._ids and rank not in self._lost):
            if self.hosts[rank] not in silent:
                asked.setdefault(self.hosts[rank], {})[rank] = messages[rank]
        answers = ask_hosts(self.links, "", asked, timeout)
        return {rank: answers[rank] for rank in messages if rank in answers}

    def begin(self, rank: int, function: Callable[..., Any], *args: Any) -> Reply:
        return _LookedReply(super().begin(rank, function, *args), self._link(rank))

    def call(self, rank: int, function: Callable[..., Any], *args: Any) -> Reply:
        self.check_heard([rank])
        return super().call(rank, function, *args)

    def provide(self, ranks: Iterable[int]) -> None:
        wanted = list(ranks)
        self.check_heard(wanted)
        for path in glob.glob(os.path.join(self._folder, "*.py")):  # the lines of cells
            changed = os.path.getmtime(path)
            for host in dict.fromkeys(self.hosts[rank] for rank in wanted):
                if self._put.get((host, path)) != changed:
                    with open(path, encoding="utf-8") as file:
                        self.links[host].request("put", path, file.read())
                    self._put[host, path] = changed
        self.check_heard(wanted)

    def check_files(self, paths: Sequence[str]) -> None:
        self.check_heard(range(len(self.hosts)))
        for link in self.links.values():
            missing = link.request("missing", list(paths))
            if missing:
                raise WorldError(
                    f"{missing[0]} is not there on host {link.host}.",
                    "Ranks run what their own host has: use a folder that all hosts share, or copy it to each.",
                )

    def check_connection(self) -> None:
        super().check_connection()
        if self._agents is not None:
            self._agents.await_answers()
        for link in self.links.values():
            if link.trouble:
                raise WorldError(f"host {link.host} cannot be followed: {link.trouble}.", "Close the world.")

    def check_heard(self, ranks: Iterable[int], *, asked: bool = False) -> None:
        for host in dict.fromkeys(self.hosts[rank] for rank in ranks):
            link = self.links[host]
            if link.ended:
                raise WorldError(
                    f"the agent on host {host} {link.ended}; {phrases.ranks(self._on(host))} ended with it.",
                    "world.restart() starts them again.",
                )
            limit = LATE_S if asked else SILENT_S
            if link.silent_s > limit:
                link.look_anew(LATE_S)  # perhaps this process was stopped, or had no core
            if link.silent_s > limit:
                raise WorldError(
                    f"nothing is heard from host {host} ({phrases.ranks(self._on(host))}) for {link.silent_s:.0f} s.",
                    f"{STILL_RUNS} This world continues when the host answers again. If it is lost, close the world, and "
                    "launch another on the engines that are left: ddpnb.launch(n, hosts=client[[...]]).",
                )

    def share(self, folder: str, ranks: Iterable[int]) -> None:
        token = os.path.join(folder, f".{secrets.token_hex(12)}")
        hosts = dict.fromkeys(self.hosts[rank] for rank in ranks)
        open(token, "w", opener=private).close()
        try:
            for host in hosts:
                self.links[host].mirror.allow(folder)
                self.links[host].request("share", folder, os.path.basename(token))
        finally:
            os.unlink(token)

    # -- end

    def kill(self, rank: int) -> None:
        self.check_owner()
        if rank in self._pids and self.exit_status(rank) is None:
            self._link(rank).request("kill", rank)
            self._link(rank).look_anew(_LOOK_S)

    def replace(
        self, environments: Mapping[int, dict[str, str]], timeout: float, prepare: Callable[[], None] = lambda: None
    ) -> None:
        def fresh() -> None:
            for rank in environments:  # from now on files of an earlier process are not taken
                self._link(rank).mirror.starts[rank] += 1
            prepare()

        deadline = time.monotonic() + timeout
        self._renew_agents(list(environments), timeout)
        super().replace(environments, deadline - time.monotonic(), fresh)

    def stop(self) -> None:
        if self._cluster.closed or not self.owned:
            return
        if self._agents is not None:
            self._agents.await_answers()
            self._agents.close(end=True)
        if self.client is not None:
            self.client.close(linger=0)
        self._cluster.stop()
