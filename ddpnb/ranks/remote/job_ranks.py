"""The ranks of a start of a process group on several hosts, as the launcher of the job sees them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from ddpnb.errors import WorldError
from ddpnb.ranks.jobs.job_processes import JobProcesses, ended
from ddpnb.ranks.outside import Outside
from ddpnb.ranks.process_samples import GONE, STOPPED
from ddpnb.ranks.remote.asking import ask_hosts
from ddpnb.ranks.remote.link import LATE_S, SILENT_S, Link
from ddpnb.ranks.remote.messages import way_to
from ddpnb.ranks.remote.outside import OutsideOnHosts
from ddpnb.recording import phrases
from ddpnb.recording.ending import UNKNOWN_SIGNAL


class OtherHosts(Protocol):
    """The hosts of a job: ``JobHosts``, or ``AttachedHosts`` in another process."""

    links: dict[str, Link]

    def name_of(self, place: str) -> str: ...
    def leave(self) -> None: ...


class JobOnHosts(JobProcesses):
    """Ranks on this host, and on those of which an agent has connected.

    Args:
        folder: of their process group.
        hosts: of the job.
    """

    def __init__(self, folder: str, hosts: OtherHosts) -> None:
        super().__init__(folder)
        self._hosts = hosts
        self._start = os.path.basename(folder)
        self._seen: dict[int, dict[str, Any]] = {}

    def close(self) -> None:
        self._hosts.leave()

    # -- which rank is where

    def host_of(self, rank: int) -> str:
        """The name of the rank's host; empty for this one, and where that is not known."""
        known = self.identity(rank)
        return self._hosts.name_of(known.place) if known is not None and not known.here else ""

    @property
    def hosts(self) -> dict[int, str]:
        """The hosts of the ranks that are not on this one."""
        return {rank: name for rank in self._known if (name := self.host_of(rank))}

    @property
    def links(self) -> Mapping[str, Link]:
        """Those to the other hosts."""
        return self._hosts.links

    def state(self, rank: int) -> dict[str, Any] | None:
        """What the last look at the rank's host has shown of its process."""
        link = self.links.get(self.host_of(rank))
        state = link.state(self.pid(rank)) if link is not None else None
        if state is not None:
            self._seen[rank] = state
        elif rank in self._seen and ended(self.folder, rank):  # another agent is there now
            status = self._seen[rank]["exit"]
            self._seen[rank] = {**self._seen[rank], "exit": UNKNOWN_SIGNAL if status is None else status}
        return self._seen.get(rank)

    # -- state

    def alive(self, rank: int) -> bool:
        if not self.host_of(rank):
            return super().alive(rank)
        state = self.state(rank)
        return state is None or (state["exit"] is None and state["sample"].status != GONE)

    def stopped(self, rank: int) -> bool:
        if not self.host_of(rank):
            return super().stopped(rank)
        state = self.state(rank)
        return state is not None and state["sample"].status in STOPPED

    def exit_status(self, rank: int) -> int | None:
        name = self.host_of(rank)
        if not name:
            return super().exit_status(rank)
        state = self.state(rank)
        status = state["exit"] if state is not None else None
        if status is None and self._is_late(name) and ended(self.folder, rank):
            return UNKNOWN_SIGNAL  # a scheduler ends the agent with the last rank of its host
        return status

    def _is_late(self, name: str) -> bool:
        return self.links[name].silent_s > LATE_S

    def outside(self) -> Outside:
        return OutsideOnHosts(self)

    def silent_hosts(self) -> dict[str, tuple[int, ...]]:
        late: dict[str, list[int]] = {}
        for rank, name in self.hosts.items():
            if self._is_late(name) and self.exit_status(rank) is None:
                late.setdefault(name, []).append(rank)
        return {name: tuple(ranks) for name, ranks in late.items()}

    def clock_ns(self, rank: int) -> int:
        """See ``OnHosts``."""
        return self.links[self.host_of(rank)].clock.ahead_ns

    def check_heard(self, ranks: Iterable[int], *, asked: bool = False) -> None:
        wanted, hosts = set(ranks), self.hosts
        for name, late in self.silent_hosts().items():
            mine = [rank for rank in late if rank in wanted]
            link = self.links[name]
            if mine and link.silent_s > (LATE_S if asked else SILENT_S):
                raise WorldError(
                    f"nothing is heard from host {name} ({phrases.ranks([r for r in hosts if hosts[r] == name])}) for "
                    f"{link.silent_s:.0f} s.",
                    "Is the network between the hosts up?",
                )

    # -- requests

    def exchange(self, messages: Mapping[int, Mapping[str, Any]], timeout: float) -> dict[int, dict[str, Any]]:
        by_host: dict[str, dict[int, Mapping[str, Any]]] = {}
        for rank, message in messages.items():
            by_host.setdefault(self.host_of(rank), {})[rank] = message
        here = by_host.pop("", {})
        asked = {host: mine for host, mine in by_host.items() if not self._is_late(host)}
        ask_here = partial(super().exchange, here, timeout)
        answers = ask_hosts(self.links, self._start, asked, timeout, ask_here)
        return {rank: answers[rank] for rank in messages if rank in answers}


def attached(folder: str) -> JobProcesses:
    """The ranks of a start for a process that attaches to their job.

    Args:
        folder: of the start.

    Raises:
        WorldError: ranks run on other hosts, and the launcher, which asks them, does not answer.
    """
    job = os.path.dirname(folder)
    way = way_to(job)
    if way is None:
        return JobProcesses(folder)
    from ddpnb.ranks.remote.attached import AttachedHosts

    return JobOnHosts(folder, AttachedHosts(way))
