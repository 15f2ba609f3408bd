"""The TCP connections between the ranks of a host: what gloo and the store wait on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psutil

Rows = list[list[Any]]  # [[fd, [own address, port], [other address, port]], ...]


def between(pids: Iterable[int]) -> dict[int, Rows]:
    """For each process its connections whose other end is one of these processes too: see ``among``."""
    return among(of(pids))


def of(pids: Iterable[int]) -> dict[int, Rows]:
    """For each process that lives its TCP connections."""
    connections_of: dict[int, Rows] = {}
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections("tcp")
        except psutil.Error:
            continue  # it is gone
        connections_of[pid] = [
            [connection.fd, _plain(connection.laddr), _plain(connection.raddr)]
            for connection in connections
            if connection.laddr and connection.raddr
        ]
    return connections_of


def among(connections_of: Mapping[int, Rows], hosts: Mapping[int, str] | None = None) -> dict[int, Rows]:
    """The connections of these processes whose other end is one of them too (the store's own included).

    That leaves out the engine's connections to its controller, and all that the user's code has with
    the rest of the world.

    Args:
        connections_of: of each process, or rank.
        hosts: on which each is; by default all are on one. An address of the loopback means another end on each host.
    """

    def end(key: int, address: Sequence[Any]) -> tuple[str, str, int]:
        name, port = str(address[0]), int(address[1])
        return (hosts or {}).get(key, "") if name.startswith("127.") or name == "::1" else "", name, port

    ends = {(end(key, own), end(key, other)) for key, rows in connections_of.items() for _, own, other in rows}
    return {
        key: [row for row in rows if (end(key, row[2]), end(key, row[1])) in ends]
        for key, rows in connections_of.items()
    }


def in_transit(between: Mapping[int, Sequence[Sequence[Any]]]) -> bool:
    """Whether a message is on its way on one of these connections (of ``between()``), as the kernel sees it.

    It is if bytes are in a socket's queue, or if a thread of gloo's, which takes them from there, is running or
    waits for a core. Where the kernel does not tell (no /proc), nothing is in transit.
    """
    return any(_gloo_runs(pid) for pid in between) or any(_queued(pid, rows) for pid, rows in between.items())


_GLOO = (b"(gloo_", b"(pt_gloo_")


def _gloo_runs(pid: int) -> bool:
    folder = f"/proc/{pid}/task"
    try:
        threads = os.listdir(folder)
    except OSError:
        return False
    for thread in threads:
        try:
            with open(f"{folder}/{thread}/stat", "rb") as file:
                name, _, rest = file.read().partition(b" ")[2].rpartition(b") ")
        except OSError:
            continue  # it has ended
        if name.startswith(_GLOO) and rest[:1] in b"RD":
            return True
    return False


def _queued(pid: int, connections: Sequence[Sequence[Any]]) -> bool:
    """Whether bytes are queued in one of these sockets of a process, to be sent or to be read."""
    sockets: set[str] = set()
    for fd, *_ in connections:
        try:
            sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue
    for table in ("tcp", "tcp6") if sockets else ():
        try:
            with open(f"/proc/{pid}/net/{table}") as file:
                rows = [line.split() for line in file]
        except OSError:
            continue
        if any(row[4] != "00000000:00000000" and f"socket:[{row[9]}]" in sockets for row in rows[1:] if len(row) > 9):
            return True
    return False


def _plain(address: Any) -> list[Any]:
    return [str(address.ip).removeprefix("::ffff:"), int(address.port)]
