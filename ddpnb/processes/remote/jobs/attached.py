"""The other hosts of a job for a process that attaches to it: what it asks of their agents goes through the launcher."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import zmq

from ddpnb.errors import WorldError
from ddpnb.processes.environment import LOOPBACK
from ddpnb.processes.rank_processes import Answer
from ddpnb.processes.remote.jobs.channel import JobReply, shown
from ddpnb.processes.remote.jobs.exchange import Exchange
from ddpnb.processes.remote.jobs.launcher import connected
from ddpnb.processes.remote.link import Channel, Link
from ddpnb.processes.remote.mirror import Mirror

_ANSWER_S = 3.0
_AGAIN_S = 1.0  # then hosts that have come since are asked for


class AttachedHosts:
    """The links to the hosts of a job, through its launcher.

    Args:
        job: its folder.
        way: from ``way_to``.

    Raises:
        WorldError: the launcher does not answer.
    """

    def __init__(self, job: str, way: Mapping[str, Any]) -> None:
        self.links: dict[str, Link] = {}
        self._names: dict[str, str] = {}
        self._job = job
        self._asked_at = 0.0
        context: zmq.Context[Any] = zmq.Context()
        self._exchange = Exchange(context, connected(context, way, LOOPBACK), lambda _from, _message: None, {})
        try:
            self._learn()
        except WorldError:
            self._exchange.close()
            raise

    def _learn(self) -> None:
        """Ask which hosts there are."""
        self._asked_at = time.monotonic()
        try:
            answer = self.relay("", "hosts", []).result(_ANSWER_S)
        except TimeoutError:
            raise WorldError("the launcher of this job does not answer.", "Is it stopped (Ctrl-Z)?") from None
        names = {str(place): str(name) for place, name in answer.get("content", {}).items()}
        for name in names.values():
            if name not in self.links:
                self.links[name] = Link(name, _Relay(self, name), _NoFiles(self._job))
        self._names = names

    def relay(self, host: str, verb: str, given: list[Any]) -> Any:
        """Ask the launcher to ask an agent; the Future of its answer."""
        return self._exchange.send([], {"kind": "relay", "host": host, "verb": verb, "given": given})

    def name_of(self, place: str) -> str:
        """See ``JobHosts.name_of``."""
        if place not in self._names and time.monotonic() - self._asked_at > _AGAIN_S:
            with contextlib.suppress(WorldError):
                self._learn()
        return self._names.get(place, "")

    def leave(self) -> None:
        """Ask no more; the launcher keeps its links."""
        self._exchange.close()
        for link in self.links.values():
            link.close()


class _NoFiles(Mirror):
    """The launcher has them here already."""

    def take(self, look: dict[str, Any]) -> None: ...


class _Relay(Channel):
    def __init__(self, hosts: AttachedHosts, host: str) -> None:
        self._hosts, self._host = hosts, host
        self._asked: dict[int, Answer] = {}

    def look(self, have: int, timeout: float) -> dict[str, Any] | None:  # noqa: ARG002 (it has all files)
        return shown(self._hosts.relay(self._host, "look", []), timeout)

    def request(self, number: int, verb: str, given: list[Any]) -> Answer:
        if number not in self._asked:  # nothing is lost on the way to the launcher
            self._asked = {number: JobReply(self._hosts.relay(self._host, verb, given))}
        return self._asked[number]
