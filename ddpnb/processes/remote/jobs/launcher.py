"""The connection of an agent to the launcher of its job, on another host."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import zmq

from ddpnb.processes.remote.jobs.messages import encoded, understood
from ddpnb.recorder import protocol

_GREET_S = 5.0  # for the launcher to answer
_CLOCKS = 5  # messages, by the fastest of which the clocks are compared


class Launcher:
    """The connection to the launcher.

    Args:
        way: see ``inject.other_host.unpacked``.

    Raises:
        OSError: it is not reached.
    """

    def __init__(self, way: Mapping[str, Any]) -> None:
        ends = [(str(address), int(way["port"])) for address in way["addresses"]]
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        tried = [connected(context, way, address) for address in way["addresses"]]
        for one in tried:
            with contextlib.suppress(zmq.Again):  # it is refused
                one.send(encoded({"kind": "hello"}), zmq.NOBLOCK)
        self.socket: Any = _first_answer(tried, _GREET_S) if tried else None
        if self.socket is None:
            where = ", ".join(f"{address}:{port}" for address, port in ends) or "no address"
            raise OSError(f"its launcher does not answer ({where})")
        self._end = ends[tried.index(self.socket)]
        for one in tried:
            if one is not self.socket:
                one.close(linger=0)
        self.ahead_ns = self._compare_clocks()

    def begin(self) -> None:
        """From now on looks are answered."""
        self.send({"kind": "here", "host": protocol.host(), "place": protocol.place()})

    def _compare_clocks(self) -> int:
        """What must be added to the monotonic clock of this host, which gives that of the launcher's."""
        found: list[tuple[int, int]] = []
        for _ in range(_CLOCKS):
            sent = time.monotonic_ns()
            self.send({"kind": "clock"})
            if not self.socket.poll(int(_GREET_S * 1000)):
                raise OSError("its launcher does not answer any more")
            now = understood(self.socket.recv())["now_ns"]
            arrived = time.monotonic_ns()
            found.append((arrived - sent, now - (sent + arrived) // 2))
        return min(found)[1]

    def received(self) -> dict[str, Any] | None:
        """The next message that has come; None: there is none."""
        return understood(self.socket.recv()) if self.socket.poll(0) else None

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; what nobody takes is asked for again."""
        with contextlib.suppress(zmq.Again):
            self.socket.send(encoded(message), zmq.NOBLOCK)

    def is_gone(self) -> bool:
        """Whether its host says that nothing listens there any more: a link that is cut may come back."""
        return _refuses(self._end)


def connected(context: Any, way: Mapping[str, Any], address: str) -> Any:
    """A socket that connects to the launcher at this address."""
    made = context.socket(zmq.DEALER)
    made.routing_id = secrets.token_hex(8).encode()  # by which it is known again when a link was cut
    made.curve_serverkey, made.curve_publickey, made.curve_secretkey = (
        str(way[key]).encode() for key in ("server", "public", "secret")
    )
    made.linger = 0
    made.tcp_keepalive = 1
    made.heartbeat_ivl, made.heartbeat_timeout = 2000, 10_000
    made.reconnect_ivl, made.reconnect_ivl_max = 100, 1000
    made.connect(f"tcp://{address}:{way['port']}")
    return made


def _first_answer(tried: Sequence[Any], seconds: float) -> Any:
    """The socket at which an answer comes first; None: there is none in time."""
    poller = zmq.Poller()
    for one in tried:
        poller.register(one, zmq.POLLIN)
    for one, _ in poller.poll(int(seconds * 1000)):
        one.recv()
        return one
    return None


def _refuses(end: tuple[str, int]) -> bool:
    try:
        socket.create_connection(end, timeout=2).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
