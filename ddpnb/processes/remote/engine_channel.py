"""The channel to an agent that is an engine of ipyparallel, as the ranks are that it starts."""

from __future__ import annotations

import math
import time
from typing import Any

from ddpnb.processes.engines.client import Client, Reply
from ddpnb.processes.engines.replying import in_json
from ddpnb.processes.remote import agent
from ddpnb.processes.remote.link import Channel, Link


class EngineChannel(Channel):
    """To one engine.

    Args:
        client: of the world.
        engine: the number of the agent.
    """

    def __init__(self, client: Client, engine: int) -> None:
        self._client = client
        self._engine = engine

    def look(self, have: int, timeout: float) -> dict[str, Any] | None:
        return self._client.control({self._engine: {"verb": "look", "have": have}}, timeout).get(self._engine)

    def request(self, number: int, verb: str, given: list[Any]) -> Reply:
        return self._client.call(self._engine, in_json, agent.answer, number, verb, given)


class LookedReply(Reply):
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
