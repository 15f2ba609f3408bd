"""The agents of a World, one on each host: the user's engines start them, and say which of them have ended."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpnb.errors import LaunchError
from ddpnb.ranks.exit_reasons import in_words
from ddpnb.ranks.remote.agents import Agents
from ddpnb.ranks.remote.link import LATE_S, Link
from ddpnb.ranks.remote.mirror import Mirror
from ddpnb.recording import verbs
from ddpnb.recording.files import private

if TYPE_CHECKING:
    from ddpnb.ranks.remote.hosts import Host, Hosts

_ASK_S = 2.0  # between two questions after the agent of a host that is silent
_WAIT_S = 1.0  # for an answer
_AGAIN_S = 3.0  # for one that is lost


class WorldAgents(Agents):
    """Starts the agents.

    Args:
        hosts: where they run.
        folders: of the world: in memory, for output.
        connection: what an engine needs to connect to its controller.

    Raises:
        WorldError: connections cannot be encrypted or accepted on this machine.
    """

    end_s = 10.0
    left_there = "what runs there ends by itself within 5 minutes"

    def __init__(
        self,
        hosts: Hosts,
        folders: Sequence[str],
        connection: Mapping[str, Any],
    ) -> None:
        super().__init__(hosts.address)
        self._hosts = hosts
        self._folders = folders
        self._connection = connection
        # host -> when its ranks were asked to correct their clocks, and their answers
        self._correcting: dict[str, tuple[float, Future[dict[str, Any]]]] = {}
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
        tokens = [os.path.join(folder, token) for folder in dict.fromkeys(self._folders)]
        common = {
            **self._way, "kind": "world", "addresses": [self._hosts.address], "connection": self._connection,
            "folders": self._folders, "token": token,
        }  # fmt: skip

        def order(host: Host) -> Mapping[str, Any]:
            return {**common, "host": host.name, "cpus": host.cpus, "seconds": max(1.0, deadline - time.monotonic())}

        before = {name: self.links.get(name) for name in names}
        for path in tokens:
            open(path, "w", opener=private).close()
        try:
            self._pids |= self._hosts.start_agents(order, names, deadline)
            while missing := [name for name in names if self.links.get(name) is before[name]]:
                if time.monotonic() > deadline:
                    raise LaunchError(
                        f"nothing was heard from the agent on host {missing[0]} in time.",
                        "If the hosts are busy, use a longer timeout=.",
                    )
                time.sleep(0.01)
        finally:
            for path in tokens:
                os.unlink(path)

    def _link(self, name: str, send: Any, before: Link | None) -> Link:
        mirror = before.mirror if before is not None else Mirror(*self._folders)
        return Link(name, send, mirror, self._correct_clocks, partial(self._ask_after, name))

    def _correct_clocks(self, link: Link) -> None:
        """Send ranks the difference of the clocks if it has changed. Nobody waits for the answer."""
        ahead, now = link.clock.ahead_ns, time.monotonic()
        late = [rank for rank, known in list(link.clocks.items()) if known != ahead]
        at, answer = self._correcting.get(link.host, (0.0, None))
        if not late or (answer is not None and not answer.done() and now - at < _AGAIN_S):
            return
        request = verbs.message(verbs.Clock(ahead_ns=ahead))
        with contextlib.suppress(RuntimeError):  # there will be no answers any more
            answer = link.post("ask", "", dict.fromkeys(late, request), _WAIT_S)
            self._correcting[link.host] = now, answer
            answer.add_done_callback(partial(_corrected, link, ahead))

    def late(self) -> list[str]:
        """The hosts that are silent while their agents run, as far as is known."""
        late = [host for host, link in list(self.links.items()) if link.silent_s > LATE_S and not link.ended]
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


def _corrected(link: Link, ahead_ns: int, answer: Future[dict[str, Any]]) -> None:
    """Note which ranks have corrected their clocks."""
    answers = None if answer.cancelled() else answer.result().get("content")
    if isinstance(answers, dict):
        link.clocks |= {int(rank): ahead_ns for rank in answers}
