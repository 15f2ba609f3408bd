"""The control channel of a rank: a Unix socket in the folder of its World or job.

Each request is a connection of its own: the secret of this rank, which lies beside the socket, the length (4 bytes,
little-endian), and JSON; the answer is a length and JSON. Only the user of this process and root are answered, and
nothing is unpickled.

A program may close the descriptors of the socket and of connections, and get their numbers for sockets of its own. So each
is looked at before each use, and nothing waits but in a single call to the system, which keeps what it was called with.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from select import POLLIN, poll
from time import monotonic, sleep  # a script may replace those of the module
from typing import Any

from ddpnb.recorder.channel.encoding import encodable
from ddpnb.recorder.stacks.own_threads import own_thread
from ddpnb.recording.descriptors import Descriptor, as_socket, out_of_the_way
from ddpnb.recording.files import write_private
from ddpnb.recording.protocol import KEY_SIZE, LONGEST_REQUEST, key_file, within

_LENGTH = struct.Struct("<I")
_READ_S = 5.0  # for a request to arrive, and for the peer to take a part of the answer
_LOOK_S = 2.0  # between two looks whether the socket is ours
_PAUSE_S = 0.2  # after a failure
_AT_ONCE = 32  # requests
_CREDENTIALS = struct.Struct("3i")  # of a peer: process, user, group
_TIME_OUT = struct.pack("ll", int(_READ_S), 0)
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.ECONNABORTED}


class SocketChannel:
    """Answers requests in threads of its own, while the main thread hangs.

    If the program closes the socket, there is another one in its place within seconds.

    Args:
        folder: for the socket.
        rank: of this process.
        answer: serves one request.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(self, folder: str, rank: int, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._folder, self._name, self._answer = folder, f"rank{rank}.sock", answer
        self._key = secrets.token_bytes(KEY_SIZE)
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        write_private(key_file(folder, rank), self._key)
        self._listening = self._listen()
        os.register_at_fork(after_in_child=self._leave)
        own_thread(self._serve, "ddpnb control").start()

    def _listen(self) -> Descriptor:
        """A socket in the place of what has its name."""
        fresh = f"{self._name}.new"
        path = os.path.join(self._folder, fresh)
        with suppress(FileNotFoundError):
            os.unlink(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            with within(self._folder) as near:
                made.bind(os.path.join(near, fresh))
            os.chmod(path, 0o600)
            made.listen(16)
            os.rename(path, os.path.join(self._folder, self._name))
            return Descriptor(out_of_the_way(made.detach()))

    def _leave(self) -> None:
        """In a forked child, which is no rank."""
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                if not self._listening.is_ours:
                    sleep(_PAUSE_S)
                    self._listening = self._listen()
                if (connection := self._accepted()) is None:
                    continue
            except OSError as error:
                if error.errno not in _PASSING:  # it is ours no more, or of no use: a next one may be
                    self._listening.close()
                if not os.path.isdir(self._folder):
                    return
                sleep(_PAUSE_S)
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            try:
                own_thread(self._reply, "ddpnb answer", (connection,)).start()
            except RuntimeError:  # no more threads: the launcher sees that it was not answered
                connection.close()
                self._room.release()

    def _accepted(self) -> Descriptor | None:
        """The next connection; None if none has come for a while.

        To wait in ``accept`` would take the lowest number that is free, and a program could not ``dup2`` to it.
        """
        ready = poll()
        ready.register(self._listening.checked(), POLLIN)
        if not ready.poll(_LOOK_S * 1000):
            return None
        with as_socket(self._listening.checked()) as listening:
            listening.setblocking(False)
            return Descriptor(listening.accept()[0].detach())

    def _reply(self, connection: Descriptor) -> None:
        with suppress(Exception):  # what comes may be anything
            _prepare(connection)
            request = json.loads(self._request(connection))
            if isinstance(request, dict):
                answer = json.dumps(encodable(self._answer(request))).encode()
                _send(connection, _LENGTH.pack(len(answer)) + answer)
        connection.close()
        self._room.release()

    def _request(self, connection: Descriptor) -> bytes:
        deadline = monotonic() + _READ_S
        if not hmac.compare_digest(_exactly(connection, KEY_SIZE, deadline), self._key):
            raise PermissionError("not the secret of this rank")
        length = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))[0]
        if length > LONGEST_REQUEST:
            raise ValueError("the request is too long")
        return _exactly(connection, length, deadline)


def is_trusted(peer: socket.socket) -> bool:
    """Whether at the other end of a Unix socket is a process of the same user, or of root."""
    if peer.family != socket.AF_UNIX:
        return False
    if not hasattr(socket, "SO_PEERCRED"):  # not Linux: the folder and the secret must do
        return True
    user = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
    return user in (0, os.geteuid())


def _prepare(connection: Descriptor) -> None:
    with as_socket(connection.checked()) as peer:
        if not is_trusted(peer):
            raise PermissionError("a process of another user")
        peer.setblocking(True)  # the system waits, and Python does not
        for kind in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            peer.setsockopt(socket.SOL_SOCKET, kind, _TIME_OUT)


def _exactly(connection: Descriptor, count: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while count:
        part = os.read(connection.checked(), min(count, 1 << 20))
        if not part or monotonic() > deadline:
            raise ValueError("the request is incomplete")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _send(connection: Descriptor, data: bytes) -> None:
    left = memoryview(data)
    while left:
        with as_socket(connection.checked()) as peer:
            peer.setblocking(True)
            left = left[peer.send(left, socket.MSG_NOSIGNAL) :]  # the program may let SIGPIPE end it
