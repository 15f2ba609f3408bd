"""The agents of a world, one on each host, and the links to them."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpnb.errors import LaunchError
from ddpnb.files import private
from ddpnb.processes.engines.client import Client
from ddpnb.processes.exit_reasons import in_words
from ddpnb.processes.remote.engine_channel import EngineChannel
from ddpnb.processes.remote.link import LATE_S, Link
from ddpnb.processes.remote.mirror import Mirror
from ddpnb.recorder import verbs

if TYPE_CHECKING:
    from ddpnb.processes.remote.hosts import Host, Hosts

_ASK_S = 2.0  # between two questions after the agent of a host that is silent
_WAIT_S = 1.0  # for an answer


class Agents:
    """Starts the agents, and learns from the user's engines which of them have ended.

    Args:
        hosts: where they run.
        folders: of the world: in memory, for output.
        client: of the world.
        connection: what an engine needs to connect to its controller.
        find: the number of the engine that this agent of a host is; None: it has not registered yet.
        engine_of: the number of the engine of a rank; None: it is not known yet.
    """

    def __init__(
        self,
        hosts: Hosts,
        folders: Sequence[str],
        client: Client,
        connection: Mapping[str, Any],
        find: Callable[[str, int], int | None],
        engine_of: Callable[[int], int | None],
    ) -> None:
        self.links: dict[str, Link] = {}
        self._hosts = hosts
        self._memory, self._folder = folders
        self._client = client
        self._connection = connection
        self._find = find
        self._engine_of = engine_of
        self._pids: dict[str, int] = {}
        self._lock = threading.Lock()  # of what follows: several threads watch
        # host -> when the user's engine there was asked after the agent, and its answer
        self._asked: dict[str, tuple[float, Any]] = {}

    def start(self, names: Sequence[str], deadline: float) -> None:
        """Start the agents of these hosts, and wait for them. Those that replace others continue their files.

        Raises:
            LaunchError: one could not be started, or is not heard in time.
        """
        token = f".{secrets.token_hex(12)}"
        tokens = [os.path.join(folder, token) for folder in dict.fromkeys([self._memory, self._folder])]
        controller = [self._hosts.address, int(self._connection["registration"])]

        def config(host: Host) -> Mapping[str, Any]:
            common = {"connection": self._connection, "controller": controller, "token": token}
            return {"host": host.name, "cpus": host.cpus, "folders": [self._memory, self._folder], **common}

        for path in tokens:
            open(path, "w", opener=private).close()
        try:
            pids = self._hosts.start_agents(config, names, deadline)
            self._pids |= pids
            self._wait_for(pids, deadline)
        finally:
            for path in tokens:
                os.unlink(path)

    def _wait_for(self, pids: Mapping[str, int], deadline: float) -> None:
        missing = dict(pids)
        while missing:
            for host, pid in list(missing.items()):
                engine = self._find(host, pid)
                if engine is not None:
                    mirror = self._mirror(host)
                    self.links[host] = link = Link(host, EngineChannel(self._client, engine), mirror)
                    link.ask_after = partial(self._ask_after, host)
                    link.after_look = partial(self._correct_clocks, link)
                    del missing[host]
            if missing and time.monotonic() > deadline:
                host, pid = next(iter(missing.items()))
                told = self._hosts.log_of(host, pid)
                raise LaunchError(
                    f"nothing was heard from the agent on host {host} in time.",
                    f"Its last lines:\n    {told}" if told else "If the hosts are busy, use a longer timeout=.",
                )
            time.sleep(0.01)

    def _mirror(self, host: str) -> Mirror:
        """That of an agent that has ended, or a new one."""
        before = self.links.get(host)
        if before is not None:
            before.close()
            return before.mirror
        mirror = Mirror(self._memory)
        mirror.allow(self._folder)
        return mirror

    def _correct_clocks(self, link: Link) -> None:
        """Send ranks the difference of the clocks if it has changed. Nobody waits for their answers."""
        ahead = link.clock.ahead_ns
        late = {rank: self._engine_of(rank) for rank, known in list(link.clocks.items()) if known != ahead}
        reached = {rank: engine for rank, engine in late.items() if engine is not None}
        if reached:
            with contextlib.suppress(Exception):  # the client is closed
                self._client.control(dict.fromkeys(reached.values(), verbs.message(verbs.Clock(ahead_ns=ahead))), 0)
                link.clocks |= dict.fromkeys(reached, ahead)

    def late(self) -> list[str]:
        """The hosts that are silent while their agents run, as far as is known."""
        late = [host for host, link in self.links.items() if link.silent_s > LATE_S and not link.ended]
        for host in late:
            self._ask_after(host)
        return [host for host in late if not self.links[host].ended]

    def await_answers(self) -> None:
        """Wait a moment for the engines of hosts that are silent: whether their agents have ended."""
        while any(self._asked_ago(host) < _WAIT_S for host in self.late()):
            time.sleep(0.02)

    def _asked_ago(self, host: str) -> float:
        """Seconds since the question that is open; infinite if none is."""
        with self._lock:
            at, answer = self._asked.get(host, (0.0, None))
        return time.monotonic() - at if answer is not None else math.inf

    def _ask_after(self, host: str) -> None:
        """Ask the user's engine on this host how its agent has ended, if it has. Nobody waits for the answer."""
        with self._lock:
            now = time.monotonic()
            at, answer = self._asked.get(host, (-_ASK_S, None))
            try:
                if answer is not None and answer.ready():
                    status = answer.get(0)
                    if isinstance(status, int):
                        self.links[host].ended = in_words(status)
                    answer = None
                if answer is None and now - at > _ASK_S:
                    at, answer = now, self._hosts.ask_after(host, self._pids[host])
            except Exception:  # the user's Client is closed, or their engine is another one
                answer = None
            self._asked[host] = at, answer

    def ended(self) -> list[str]:
        """The hosts whose agents have ended."""
        return [host for host, link in self.links.items() if link.ended]
