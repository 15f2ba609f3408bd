"""What the hosts of ranks say about their processes: this one, and others through the agents there."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from ddpnb.errors import WorldError
from ddpnb.ranks import connections, py_spy, source_text
from ddpnb.ranks.outside import Connections, Outside
from ddpnb.ranks.process_samples import ProcessSample
from ddpnb.ranks.rank_processes import RankView
from ddpnb.ranks.remote.link import Link
from ddpnb.ranks.source_text import SourceText
from ddpnb.recording.recording import Child
from ddpnb.recording.stacks import Stack

_REQUEST_S = 2.0  # for what a look does not show
_MOST_S = 10.0  # for the children of a rank


class OnHosts(RankView, Protocol):
    """Ranks on several hosts: which is where, the links to the agents there, and what these have said last."""

    @property
    def links(self) -> Mapping[str, Link]: ...

    def host_of(self, rank: int) -> str:
        """The name of the rank's host; empty for this one, and where that is not known."""
        ...

    def state(self, rank: int) -> dict[str, Any] | None:
        """What the last look has shown of the rank's process; None before it was seen."""
        ...

    def clock_ns(self, rank: int) -> int:
        """What is added to the clock of the rank's host, which gives that of this one."""
        ...


class OutsideOnHosts(Outside):
    """Of processes on this host and on others. What a host does not say in time is not known: empty."""

    here = False
    _processes: OnHosts

    def __init__(self, processes: OnHosts) -> None:
        super().__init__(processes)

    def samples(self, ranks: Iterable[int]) -> dict[int, ProcessSample]:
        here, there = self._by_host(ranks)
        silent = self._processes.silent_hosts()
        known = {
            rank: self._processes.state(rank) for host, mine in there.items() if host not in silent for rank in mine
        }
        samples = {rank: state["sample"] for rank, state in known.items() if state is not None}
        return (super().samples(here) if here else {}) | samples

    def stacks(self, rank: int, timeout: float = py_spy.TIMEOUT_S) -> tuple[Stack, ...]:
        host, pid = self._processes.host_of(rank), self._processes.pid(rank)
        if not host:
            return super().stacks(rank, timeout)
        return py_spy.as_stacks(self._request(host, "stacks", pid, timeout, timeout=timeout)) if pid else ()

    def children(self, rank: int, idle_s: float, end: float = math.inf) -> tuple[Child, ...]:
        host, pid = self._processes.host_of(rank), self._processes.pid(rank)
        if not host:
            return super().children(rank, idle_s, end)
        left = min(_MOST_S, end - time.monotonic())
        return py_spy.as_children(self._request(host, "children", pid, left, timeout=left), idle_s) if left > 0 else ()

    def connections(self, ranks: Iterable[int]) -> Connections:
        here, there = self._by_host(ranks)
        pids = {host: {self._processes.pid(rank): rank for rank in mine} for host, mine in there.items()}
        answers = self._of_hosts("connections", {host: list(mine) for host, mine in pids.items()})
        own = {self._processes.pid(rank): rank for rank in here}
        rows = {own[pid]: found for pid, found in connections.of(own).items()} | {
            pids[host][int(pid)]: found for host, answer in answers.items() for pid, found in (answer or {}).items()
        }
        return connections.among(rows, {rank: self._processes.host_of(rank) for rank in rows})

    def in_transit(self, between: Connections) -> bool:
        here, there = self._by_host(between)
        if here and super().in_transit({rank: between[rank] for rank in here}):
            return True
        pid = self._processes.pid
        asked = {host: {str(pid(rank)): between[rank] for rank in mine} for host, mine in there.items()}
        return any(self._of_hosts("in_transit", asked).values())

    def usage(self, rank: int) -> dict[str, Any]:
        if not self._processes.host_of(rank):
            return super().usage(rank)
        state = self._processes.state(rank)
        return dict(state["gpu"]) if state is not None else {}

    def source(self, rank: int, path: str) -> SourceText | None:
        """That of this machine, if it has the file too: it is the same one, or a copy."""
        host = self._processes.host_of(rank)
        if not host or os.path.exists(path) or not os.path.isabs(path):
            return source_text.read(path)
        found = self._request(host, "source", path)
        return (str(found[0])[: source_text.LIMIT], time.time() + float(found[1])) if found is not None else None

    def queued(self, rank: int, pid: int) -> tuple[int, int] | None:
        if not self._processes.host_of(rank):
            return super().queued(rank, pid)
        state = self._processes.state(rank)
        if state is None or state["queued"] is None or self._processes.pid(rank) != pid:
            return None
        at, waited = state["queued"]
        return at + self._processes.clock_ns(rank), waited

    def _by_host(self, ranks: Iterable[int]) -> tuple[list[int], dict[str, list[int]]]:
        """The ranks on this host, and those on each other one."""
        found: dict[str, list[int]] = {}
        for rank in ranks:
            found.setdefault(self._processes.host_of(rank), []).append(rank)
        return found.pop("", []), found

    def _of_hosts(self, verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The answers of these hosts, which are asked at the same time."""
        if not given:
            return {}
        with ThreadPoolExecutor(len(given)) as pool:
            answers = pool.map(lambda host: self._request(host, verb, given[host]), given)
        return dict(zip(given, answers, strict=True))

    def _request(self, host: str, verb: str, *given: Any, timeout: float = _REQUEST_S) -> Any:
        link = self._processes.links.get(host)
        if link is None or host in self._processes.silent_hosts():
            return None
        try:
            return link.request(verb, *given, timeout=timeout)
        except WorldError:
            return None
