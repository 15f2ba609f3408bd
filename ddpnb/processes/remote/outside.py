"""What the hosts of ranks say about their processes, through the agents there."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from ddpnb.errors import WorldError
from ddpnb.model.recording import Child
from ddpnb.model.stacks import Stack
from ddpnb.processes import connections, py_spy, source_text
from ddpnb.processes.outside import Connections, Outside
from ddpnb.processes.process_samples import ProcessSample
from ddpnb.processes.source_text import SourceText

_REQUEST_S = 2.0  # for what a look does not show
_MOST_S = 10.0  # for the children of a rank


class Requests(Protocol):
    """What leads to the agent of a host: see ``Link.request``."""

    def request(self, verb: str, *given: Any, timeout: float = 10.0) -> Any: ...


class OnHosts(Protocol):
    """Ranks on several hosts: which is where, the links to the agents there, and what these have said last."""

    @property
    def hosts(self) -> Mapping[int, str] | Sequence[str]: ...
    @property
    def links(self) -> Mapping[str, Requests]: ...
    def silent_hosts(self) -> dict[str, tuple[int, ...]]: ...
    def state(self, rank: int) -> dict[str, Any] | None: ...
    def pid(self, rank: int) -> int: ...

    def clock_ns(self, rank: int) -> int:
        """What is added to the clock of the rank's host, which gives that of this one."""
        ...


class OutsideRemote(Outside):
    """Of processes on other hosts. What a host does not say in time is not known: empty."""

    def __init__(self, processes: OnHosts) -> None:
        self._processes = processes

    def samples(self, ranks: Iterable[int]) -> dict[int, ProcessSample]:
        silent = {rank for late in self._processes.silent_hosts().values() for rank in late}
        known = {rank: self._processes.state(rank) for rank in ranks if rank not in silent}
        return {rank: state["sample"] for rank, state in known.items() if state is not None}

    def stacks(self, rank: int, timeout: float = py_spy.TIMEOUT_S) -> tuple[Stack, ...]:
        pid = self._processes.pid(rank)
        return py_spy.as_stacks(self._asked(rank, "stacks", pid, timeout, timeout=timeout)) if pid else ()

    def children(self, rank: int, idle_s: float, end: float = math.inf) -> tuple[Child, ...]:
        left = min(_MOST_S, end - time.monotonic())
        return py_spy.as_children(self._asked(rank, "children", rank, left, timeout=left), idle_s) if left > 0 else ()

    def connections(self, ranks: Iterable[int]) -> Connections:
        rows = self.all_connections(ranks)
        hosts = self._processes.hosts
        return connections.among(rows, {rank: hosts[rank] for rank in rows})

    def all_connections(self, ranks: Iterable[int]) -> dict[int, connections.Rows]:
        """For each rank its TCP connections, wherever they lead."""
        found = self._of_hosts("connections", self._by_host(ranks))
        return {int(rank): rows for answer in found.values() for rank, rows in (answer or {}).items()}

    def in_transit(self, between: Connections) -> bool:
        asked = {host: {str(rank): between[rank] for rank in mine} for host, mine in self._by_host(between).items()}
        return any(self._of_hosts("in_transit", asked).values())

    def usage(self, rank: int) -> dict[str, Any]:
        state = self._processes.state(rank)
        return dict(state["gpu"]) if state is not None else {}

    def source(self, rank: int, path: str) -> SourceText | None:
        """That of this machine, if it has the file too: it is the same one, or a copy."""
        if os.path.exists(path) or not os.path.isabs(path):
            return source_text.read(path)
        found = self._asked(rank, "source", path, timeout=_REQUEST_S)
        return (str(found[0])[: source_text.LIMIT], time.time() + float(found[1])) if found is not None else None

    def queued(self, rank: int, pid: int) -> tuple[int, int] | None:
        state = self._processes.state(rank)
        if state is None or state["queued"] is None or state["pid"] != pid:
            return None
        at, waited = state["queued"]
        return at + self._processes.clock_ns(rank), waited

    def _by_host(self, ranks: Iterable[int]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for rank in ranks:
            found.setdefault(self._processes.hosts[rank], []).append(rank)
        return found

    def _of_hosts(self, verb: str, given: Mapping[str, Sequence[int] | Mapping[str, Any]]) -> dict[str, Any]:
        """The answers of these hosts, which are asked at the same time."""
        links = {host: link for host in given if (link := self._processes.links.get(host)) is not None}
        if not links:
            return {}
        with ThreadPoolExecutor(len(links)) as pool:
            answers = pool.map(lambda host: self._request(host, verb, given[host]), links)
        return dict(zip(links, answers, strict=True))

    def _asked(self, rank: int, verb: str, *given: Any, timeout: float) -> Any:
        return self._request(self._processes.hosts[rank], verb, *given, timeout=timeout)

    def _request(self, host: str, verb: str, *given: Any, timeout: float = _REQUEST_S) -> Any:
        link = self._processes.links[host]
        if host in self._processes.silent_hosts():
            return None
        try:
            return link.request(verb, *given, timeout=timeout)
        except WorldError:
            return None
