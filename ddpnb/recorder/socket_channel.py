"""The control channel of a rank that is no engine: a Unix socket in the folder of its job.

Each request is a connection of its own: its length (4 bytes, little-endian) and JSON, and the answer in the same form.
The folder belongs to the user alone, and nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ddpnb.recorder.encoding import encodable
from ddpnb.recorder.protocol import LONGEST_MESSAGE, within

_LENGTH = struct.Struct("<I")
_READ_S = 5.0  # for a request to arrive


class SocketChannel:
    """Answers requests in threads of its own, while the main thread hangs.

    Args:
        folder, name: of the socket.
        answer: serves one request.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(self, folder: str, name: str, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._answer = answer
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with within(folder) as near:
            self._listening.bind(os.path.join(near, name))
        self._listening.listen(16)
        os.register_at_fork(after_in_child=self._listening.close)
        threading.Thread(target=self._serve, name="ddpnb control", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                if self._listening.fileno() < 0:
                    return
                continue
            with suppress(RuntimeError):  # no more threads: the launcher sees that it was not answered
                threading.Thread(target=self._reply, args=(connection,), name="ddpnb answer", daemon=True).start()

    def _reply(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError, RecursionError, struct.error):
            connection.settimeout(_READ_S)
            request = json.loads(_received(connection))
            if isinstance(request, dict):
                answer = json.dumps(encodable(self._answer(request))).encode()
                connection.sendall(_LENGTH.pack(len(answer)) + answer)


def _received(connection: socket.socket) -> bytes:
    length = _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0]
    if length > LONGEST_MESSAGE:
        raise ValueError("the message is too long")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise ValueError("the message is incomplete")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
