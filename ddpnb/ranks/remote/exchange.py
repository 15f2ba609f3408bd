"""The messages between a launcher and its agents: each end has a socket of ZeroMQ, which belongs to one thread."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from socket import create_connection
from typing import Any

import zmq

from ddpnb.ranks.remote.host_clock import HostClock
from ddpnb.ranks.remote.messages import encoded, understood

_GREET_S = 5.0  # for the launcher to answer
_TICK_MS = 200


class Exchange:
    """The messages of one socket.

    Args:
        context: is ended with it.
        socket: a ROUTER or a DEALER.
        take: called with who has sent a message (frames, none for a DEALER) and the message, unless that is an answer.
        others: other sockets of the context, and what is called when something has arrived there.
    """

    def __init__(
        self,
        context: Any,
        socket: Any,
        take: Callable[[list[bytes], dict[str, Any]], None],
        others: Mapping[Any, Callable[[], None]],
    ) -> None:
        self._context, self._socket, self._take, self._others = context, socket, take, others
        self.lost: set[bytes] = set()  # who has closed the connection
        self._closing = False
        self._lock = threading.Lock()
        self._number = 0
        self._unsent: deque[list[bytes]] = deque()
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(target=self._serve, name="ddpnb messages", daemon=True)
        self._thread.start()

    def post(self, to: Sequence[bytes], message: Mapping[str, Any]) -> None:
        """Send a message that has no answer."""
        with self._lock:
            if self._closing:
                return
            self._unsent.append([*to, encoded(message)])
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake, b".")

    def send(self, to: Sequence[bytes], message: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """Send a message; its result is the answer, if that comes.

        Raises:
            RuntimeError: this was closed.
        """
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._closing:
                raise RuntimeError("closed")
            self._number += 1
            number = self._number
            self._asked[number] = future
        future.add_done_callback(lambda _: self._asked.pop(number, None))
        self.post(to, {**message, "id": number})
        return future

    def _serve(self) -> None:
        poller = zmq.Poller()
        for one in (self._socket, self._woken, *self._others):
            poller.register(one, zmq.POLLIN)
        while not self._closing:
            ready = dict(poller.poll(_TICK_MS))
            for socket, act in self._others.items():
                if socket in ready:
                    act()
            if self._woken in ready:
                os.read(self._woken, 4096)
            while self._unsent:
                self._send(self._unsent.popleft())
            while self._socket.poll(0):
                *sender, frame = self._socket.recv_multipart()
                with contextlib.suppress(ValueError, KeyError, TypeError, RuntimeError):  # what comes may be anything
                    self._received(sender, understood(frame))

    def _send(self, frames: list[bytes]) -> None:
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:  # nobody takes it: it is asked for again
            pass
        except zmq.ZMQError:  # no such connection
            self.lost.add(frames[0])
            future = self._asked.pop(understood(frames[-1]).get("id", 0), None)
            if future is not None and not future.done():
                future.set_result({"lost": True})

    def _received(self, sender: list[bytes], message: dict[str, Any]) -> None:
        self.lost.difference_update(sender)
        if message["kind"] != "answer":
            self._take(sender, message)
            return
        future = self._asked.pop(message["id"], None)
        if future is not None and not future.done():
            future.set_result(message)

    def close(self) -> None:
        """End it, and the context: what was asked is not answered any more."""
        with self._lock:
            self._closing = True
        for future in list(self._asked.values()):
            future.cancel()
        self._thread.join(5)
        self._context.destroy(linger=200)
        with self._lock:
            for descriptor in (self._woken, self._wake):
                os.close(descriptor)


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
        answering = _first_answer(tried, _GREET_S) if tried else None
        if answering is None:
            where = ", ".join(f"{address}:{port}" for address, port in ends) or "no address"
            raise OSError(f"its launcher does not answer ({where})")
        self._end = ends[tried.index(answering)]
        for one in tried:
            if one is not answering:
                one.close(linger=0)
        self._messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._exchange = Exchange(context, answering, lambda _from, message: self._messages.put(message), {})
        self.ahead_ns = self._compare_clocks()

    def _compare_clocks(self) -> int:
        """What must be added to the monotonic clock of this host, which gives that of the launcher's."""
        clock = HostClock()
        while not clock.known:
            sent = time.monotonic_ns()
            try:
                now = self._exchange.send([], {"kind": "clock"}).result(_GREET_S)["now_ns"]
            except TimeoutError:
                raise OSError("its launcher does not answer any more") from None
            clock.add(sent, now, now, time.monotonic_ns())
        return -clock.ahead_ns

    def say(self, kind: str, **more: Any) -> None:
        """Send a message that has no answer."""
        self._exchange.post([], {"kind": kind, **more})

    def answer(self, message: Mapping[str, Any], **more: Any) -> None:
        """Answer a message; what nobody takes is asked for again."""
        self._exchange.post([], {"kind": "answer", "id": message["id"], **more})

    def received(self, seconds: float) -> list[dict[str, Any]]:
        """The messages that have come by now, or the first one that comes within this time."""
        messages: list[dict[str, Any]] = []
        with contextlib.suppress(Empty):
            messages.append(self._messages.get(timeout=seconds))
            while True:
                messages.append(self._messages.get_nowait())
        return messages

    def is_gone(self) -> bool:
        """Whether its host says that nothing listens there any more: a link that is cut may come back."""
        try:
            create_connection(self._end, timeout=2).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            pass
        return False


def connected(context: Any, way: Mapping[str, Any], address: str) -> Any:
    """A socket that connects to the launcher at this address."""
    made = context.socket(zmq.DEALER)
    made.routing_id = secrets.token_hex(8).encode()  # by which it is known again when a link was cut
    made.curve_serverkey, made.curve_publickey, made.curve_secretkey = (
        str(way[key]).encode() for key in ("server", "public", "secret")
    )
    made.linger = 0
    made.tcp_keepalive = 1
    if (
        way.get("kind") != "world"
    ):  # a World hears its host again when it hears the ranks there, which have no such beat
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
