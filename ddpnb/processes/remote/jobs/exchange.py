"""Sends and receives the messages of one socket, on a thread of its own: sockets of ZeroMQ belong to one thread."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import zmq

from ddpnb.processes.remote.jobs.messages import encoded, understood

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
                with contextlib.suppress(ValueError, KeyError, TypeError, RuntimeError):
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
                future.set_result({"error": "its process has ended"})

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
