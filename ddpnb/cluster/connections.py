"""The TCP connections between the ranks of a host: what gloo and the store wait on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psutil


def between(pids: Iterable[int]) -> dict[int, list[list[Any]]]:
    """For each process its connections whose other end is one of these processes too (the store's own included).

    That leaves out the engine's connections to its controller, and all that the user's code has with
    the rest of the world.

    Returns:
        process -> ``[[fd, [own address, port], [other address, port]], ...]``
    """
    found: dict[int, list[tuple[int, tuple[str, int], tuple[str, int]]]] = {}
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections("tcp")
        except psutil.Error:
            continue  # it is gone
        found[pid] = [(one.fd, _plain(one.laddr), _plain(one.raddr)) for one in connections if one.laddr and one.raddr]
    ends = {(own, other) for ones in found.values() for _, own, other in ones}
    return {
        pid: [[fd, list(own), list(other)] for fd, own, other in ones if (other, own) in ends]
        for pid, ones in found.items()
    }


def _plain(address: Any) -> tuple[str, int]:
    return str(address.ip).removeprefix("::ffff:"), int(address.port)
