"""The other hosts of a job for a process that attaches to it: what it asks of their agents goes through the launcher."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import zmq

from ddpnb.errors import WorldError
from ddpnb.ranks.environment import LOOPBACK
from ddpnb.ranks.remote.exchange import Exchange, connected
from ddpnb.ranks.remote.link import Link
from ddpnb.ranks.remote.mirror import Mirror

_ANSWER_S = 3.0
_AGAIN_S = 1.0  # then hosts that have come since are asked for


class AttachedHosts:
    """The links to the hosts of a job, through its launcher.

    Args:
        way: from ``way_to``.

    Raises:
        WorldError: the launcher does not answer.
    """

    def __init__(self, way: Mapping[str, Any]) -> None:
        self.links: dict[str, Link] = {}
        self._names: dict[str, str] = {}
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
            answer = self._exchange.send([], {"kind": "hosts"}).result(_ANSWER_S)
        except TimeoutError:
            raise WorldError("the launcher of this job does not answer.", "Is it stopped (Ctrl-Z)?") from None
        names = {str(place): str(name) for place, name in answer.get("content", {}).items()}
        for name in names.values():
            if name not in self.links:
                self.links[name] = Link(
                    name, partial(self._relay, name), Mirror()
                )  # the launcher has the files here already
        self._names = names

    def _relay(self, host: str, message: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """Let the launcher pass on what is asked of an agent."""
        return self._exchange.send([], {"kind": "relay", "host": host, "message": message})

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
