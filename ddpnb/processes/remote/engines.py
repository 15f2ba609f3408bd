"""The ranks of a world on several hosts: engines of its own controller, which an agent on each host starts."""

from __future__ import annotations

import glob
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ddpnb.errors import LaunchError, WorldError
from ddpnb.model import phrases
from ddpnb.processes.devices import Plan
from ddpnb.processes.engines.client import Reply
from ddpnb.processes.engines.engines import Engines
from ddpnb.processes.environment import Port, working_directory
from ddpnb.processes.exit_reasons import in_words
from ddpnb.processes.outside import Outside
from ddpnb.processes.process_samples import GONE
from ddpnb.processes.remote.engine_channel import EngineChannel, LookedReply
from ddpnb.processes.remote.hosts import Host, Hosts
from ddpnb.processes.remote.link import LATE_S, SILENT_S, Link
from ddpnb.processes.remote.mirror import Mirror
from ddpnb.processes.remote.outside import OutsideRemote
from ddpnb.recorder.protocol import CLOCK

_LOOK_S = 3.0  # for a look after a process was ended
_INTERFACE = "GLOO_SOCKET_IFNAME"  # otherwise gloo takes the address of the host's name, which may be the loopback


class RemotePort(Port):
    """A port that the agent of a host keeps free."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.port = int(link.request("reserve"))

    def release(self) -> None:
        if not self._link.closed and self._link.silent_s < LATE_S:
            self._link.request("free", self.port)


class RemoteEngines(Engines):
    """One engine per rank, on the hosts of a plan.

    Args:
        folder: the world's own folder.
        plan: which rank is on which host.
        hosts: the same hosts.
    """

    def __init__(self, folder: str, plan: Plan, hosts: Hosts) -> None:
        super().__init__(folder, address=hosts.address)
        self.links: dict[str, Link] = {}
        self.hosts = plan.hosts
        self._hosts = hosts
        self._folder = folder
        self._memory = ""
        self._put: dict[str, float] = {}  # files that the hosts have: their times
        self._agents: dict[str, int] = {}

    # -- start

    def prepare(self, memory: str, timeout: float) -> None:
        self._memory = memory
        deadline = time.monotonic() + timeout
        self._cluster.start_controller(timeout)
        self._connect((), deadline)
        connection = self._cluster.engine_connection()
        token = f".{secrets.token_hex(12)}"
        folders = list(dict.fromkeys([self._memory, self._folder]))
        tokens = [os.path.join(folder, token) for folder in folders]
        controller = [self._hosts.address, int(connection["registration"])]

        def config(host: Host) -> Mapping[str, Any]:
            common = {"connection": connection, "controller": controller, "token": token}
            return {"host": host.name, "cpus": host.cpus, "folders": [self._memory, self._folder], **common}

        for path in tokens:
            open(path, "w").close()
        try:
            self._agents = self._hosts.start_agents(config)
            self._wait_for_agents(deadline)
        finally:
            for path in tokens:
                os.unlink(path)

    def _wait_for_agents(self, deadline: float) -> None:
        assert self.client is not None
        missing = dict(self._agents)
        while missing:
            self._meet()
            for host, pid in list(missing.items()):
                engine = self._met.get((host, pid))
                if engine is not None:
                    mirror = Mirror(self._memory)
                    mirror.allow(self._folder)
                    self.links[host] = Link(host, EngineChannel(self.client, engine), mirror)
                    del missing[host]
            if missing and time.monotonic() > deadline:
                host, pid = next(iter(missing.items()))
                told = self._hosts.log_of(host, pid)
                raise LaunchError(
                    f"nothing was heard from the agent on host {host} in time.",
                    f"Its last lines:\n    {told}" if told else "If the hosts are busy, use a longer timeout=.",
                )
            time.sleep(0.01)

    @property
    def address(self) -> str:
        return self._hosts.master

    def reserve_port(self) -> Port:
        return RemotePort(self._link(0))

    def start(self, environments: Mapping[int, dict[str, str]], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for rank, environment in environments.items():
            self._start_engine(rank, environment, timeout)
        self._wait_for(list(environments), deadline)

    def _start_engine(self, rank: int, environment: dict[str, str], timeout: float = 20.0) -> None:
        link = self._link(rank)
        interface = self._hosts.interfaces.get(link.host, "")
        environment = environment | {CLOCK: str(link.ahead_ns)}
        count = link.mirror.starts.setdefault(rank, 1)
        self._environments[rank] = environment
        defaults = {_INTERFACE: interface} if interface else {}
        self._pids[rank] = int(
            link.request("start", rank, environment, defaults, working_directory(), count, timeout=timeout)
        )
        self._exits.pop(rank, None)

    def _check_starting(self, ranks: Iterable[int], deadline: float, what: str) -> None:
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
        return OutsideRemote(self)

    def silent_hosts(self) -> dict[str, tuple[int, ...]]:
        late = [host for host, link in self.links.items() if link.silent_s > LATE_S]
        return {host: tuple(rank for rank, where in enumerate(self.hosts) if where == host) for host in late}

    def state(self, rank: int) -> dict[str, Any] | None:
        """What the last look has shown of the rank's process; None before it was seen."""
        link = self._link(rank)
        return link.state(rank, link.mirror.starts.get(rank, 0))

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

    def ask_each(self, requests: Mapping[int, Mapping[str, Any]], timeout: float) -> dict[int, dict[str, Any]]:
        silent = {rank for ranks in self.silent_hosts().values() for rank in ranks}
        answers = super().ask_each({rank: one for rank, one in requests.items() if rank not in silent}, timeout)
        for host in {self.hosts[rank] for rank in answers}:  # what is read of their files is not older than the answers
            self.links[host].look_anew(LATE_S)
        return answers

    def begin(self, rank: int, function: Callable[..., Any], *args: Any) -> Reply:
        self.check_heard([rank])
        for path in glob.glob(os.path.join(self._folder, "*.py")):  # the lines of cells
            changed = os.path.getmtime(path)
            if self._put.get(path) != changed:
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                for link in self.links.values():
                    link.request("put", path, text)
                self._put[path] = changed
        return LookedReply(super().begin(rank, function, *args), self._link(rank))

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
        for link in self.links.values():
            if link.trouble:
                raise WorldError(f"host {link.host} cannot be followed: {link.trouble}.", "Close the world.")

    def check_heard(self, ranks: Iterable[int]) -> None:
        for host in dict.fromkeys(self.hosts[rank] for rank in ranks):
            if self.links[host].silent_s > SILENT_S:
                mine = [rank for rank, where in enumerate(self.hosts) if where == host]
                raise WorldError(
                    f"nothing is heard from host {host} ({phrases.ranks(mine)}) for {self.links[host].silent_s:.0f} s.",
                    "Is the network between the hosts up, and does its engine still run? This world continues when the "
                    "host answers again.",
                )

    def share(self, folder: str) -> None:
        token = os.path.join(folder, f".{secrets.token_hex(12)}")
        open(token, "w").close()
        try:
            for link in self.links.values():
                link.mirror.allow(folder)
                link.request("share", folder, os.path.basename(token))
        finally:
            os.unlink(token)

    # -- end

    def kill(self, rank: int) -> None:
        self.check_owner()
        if rank in self._pids and rank not in self._ended():
            self._link(rank).request("kill", rank)
            self._link(rank).look_anew(_LOOK_S)

    def replace(
        self, environments: Mapping[int, dict[str, str]], timeout: float, prepare: Callable[[], None] = lambda: None
    ) -> None:
        def fresh() -> None:
            for rank in environments:  # from now on files of an earlier process are not taken
                self._link(rank).mirror.starts[rank] += 1
            prepare()

        self.check_heard(environments)
        super().replace(environments, timeout, fresh)

    def _ended(self) -> set[int]:
        return {rank for rank in self._pids if self.exit_status(rank) is not None}

    def stop(self) -> None:
        if self._cluster.closed or not self.owned:
            return
        for host, link in self.links.items():
            link.close()
            try:
                link.request("end", timeout=10.0 if link.silent_s < SILENT_S else 0.5)
            except WorldError:
                print(
                    f"ddpnb: host {host} does not answer: its processes end by themselves within 5 minutes.",
                    file=sys.stderr,
                )
        if self.client is not None:
            self.client.close(linger=0)
        self._cluster.stop()
