"""Which address of one host others reach: tried, since names and routes say little about that. Standard library only, but for psutil."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Sequence
from typing import Self

import psutil

from ddpnb.ranks.environment import LOOPBACK

_TRY_S = 1.5  # for one address


def own_addresses() -> dict[str, str]:
    """The IPv4 addresses of this host, the loopback first, and the network interface of each."""
    states = psutil.net_if_stats()
    found = {
        address.address: name
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == socket.AF_INET and name in states and states[name].isup
    }
    return dict(sorted(found.items(), key=lambda entry: not entry[0].startswith("127.")))


class Listener:
    """Listens on all interfaces, and says a word by which those that reach it know that it is this one."""

    def __init__(self) -> None:
        self.word = secrets.token_hex(16)
        self._socket = socket.create_server(("", 0), backlog=64)
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._serve, name="ddpnb listener", daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                with caller, contextlib.suppress(OSError):
                    caller.settimeout(_TRY_S)
                    caller.sendall(self.word.encode())

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reached(addresses: Sequence[str], port: int, word: str) -> list[list[str]]:
    """At which of these addresses the listener with this word is reached, and from which own address each time."""
    found: list[list[str]] = []
    for address in addresses:
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=_TRY_S) as caller:
            heard = b""
            while len(heard) < len(word) and (more := caller.recv(64)):
                heard += more
            if heard == word.encode():
                found.append([address, str(caller.getsockname()[0])])
    return found


def common(found: Sequence[Sequence[Sequence[str]]]) -> str:
    """The first address at which all hosts reach a listener; the loopback before others. Empty: there is none."""
    tried = dict.fromkeys([LOOPBACK, *(address for one in found for address, _ in one)])
    return next((address for address in tried if all(any(address == other for other, _ in one) for one in found)), "")
