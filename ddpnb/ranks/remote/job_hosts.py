"""The other hosts of a job that ``ddpnb run -- COMMAND`` watches."""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ddpnb.ranks.environment import working_directory
from ddpnb.ranks.remote import addresses
from ddpnb.ranks.remote.agents import Agents
from ddpnb.ranks.remote.link import LATE_S, Link
from ddpnb.ranks.remote.messages import WAY
from ddpnb.ranks.remote.mirror import JobMirror
from ddpnb.recorder.inject import other_host
from ddpnb.recording import protocol
from ddpnb.recording.files import write_private


class JobHosts(Agents):
    """The agents of a job, which its ranks start.

    Args:
        job: the folder of the job here.

    Raises:
        WorldError: connections cannot be encrypted or accepted on this machine.
    """

    left_there = "processes of this job may still run there"

    def __init__(self, job: str) -> None:
        self._job = job
        self._relays = ThreadPoolExecutor(4, "ddpnb relay")
        super().__init__("*")
        self._way |= {
            "addresses": [address for address in addresses.own_addresses() if not address.startswith("127.")],
            "boot": protocol.boot(),
            "python": sys.executable,
            "directory": working_directory(),
        }

    @property
    def variables(self) -> dict[str, str]:
        """What the processes of the job need in their environment."""
        return {protocol.HOSTS: other_host.packed(self._way)}

    def name_of(self, place: str) -> str:
        """The name of the host with this place (``protocol.place``); empty if no agent of it has connected."""
        return self._names.get(place, "")

    def _link(self, name: str, send: Any, before: Link | None) -> Link:  # noqa: ARG002 (there may be other ranks now)
        path = os.path.join(self._job, WAY)
        if not os.path.exists(path):
            here = {"pid": os.getpid(), "started": protocol.started(os.getpid())}
            write_private(path, json.dumps(self._way | here))
        return Link(name, send, JobMirror(self._job))

    def _take(self, sender: list[bytes], message: dict[str, Any]) -> None:
        if message["kind"] == "hosts":
            self._exchange.post(sender, {"kind": "answer", "id": message["id"], "content": self._names})
        elif message["kind"] == "relay":
            self._relays.submit(self._relay, sender, message["id"], message["host"], message["message"])
        else:
            super()._take(sender, message)

    def _relay(self, sender: list[bytes], number: int, host: str, message: dict[str, Any]) -> None:
        """Pass on what another process of this host asks of an agent, or say what the last look has shown."""

        def answer(asked: Future[dict[str, Any]]) -> None:
            if not asked.cancelled():
                self._exchange.post(sender, {**asked.result(), "kind": "answer", "id": number})

        link = self.links[host]
        if message["kind"] != "look":
            self._exchange.send([self._agents[host]], message).add_done_callback(answer)
        elif host in self._left or link.look_anew(LATE_S):  # the last look at those has shown how all ranks there ended
            now = time.monotonic_ns()
            nothing: dict[str, Any] = {"starts": {}, "folders": {}}  # the files are here
            content = {"status": "ok", "serial": 0, "clock": [now, now], "ranks": link.shown, **nothing}
            self._exchange.post(sender, {"kind": "answer", "id": number, "content": content})

    def leave(self) -> None:
        """The ranks of one start are not used any more; the agents stay."""

    def forget(self) -> None:
        """Let the agents remove the files of the ranks, before something else ends these agents."""
        self._of_all(self.end_s, "forget")

    def close(self, *, end: bool) -> None:
        self._relays.shutdown(wait=False, cancel_futures=True)
        super().close(end=end)
